// ViennaCL on OpenCL: vector operations, a dense product, and a conjugate-gradient solver on a sparse matrix.
// usage: viennacl_solver [SIDE]      (the sparse matrix is a SIDE x SIDE grid's Laplacian)
// Prints one line per step with its result.
#define CL_TARGET_OPENCL_VERSION 120
#define VIENNACL_WITH_OPENCL
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <map>
#include <vector>
#include <viennacl/compressed_matrix.hpp>
#include <viennacl/linalg/cg.hpp>
#include <viennacl/linalg/inner_prod.hpp>
#include <viennacl/linalg/norm_2.hpp>
#include <viennacl/linalg/prod.hpp>
#include <viennacl/matrix.hpp>
#include <viennacl/vector.hpp>

namespace {

int wrong = 0;

void report(const char* name, double ours, double expected, double allowed) {
  const bool ok = std::fabs(ours - expected) <= allowed;
  wrong += !ok;
  std::printf("%s %.7g%s\n", name, ours, ok ? "" : " WRONG");
}

void vectors() {
  std::vector<float> host(5000);
  double sum = 0;
  for (std::size_t i = 0; i < host.size(); ++i) {
    host[i] = std::sin(0.01f * i);
    sum += 3.0 * host[i] * host[i];
  }
  viennacl::vector<float> x(host.size()), y(host.size());
  viennacl::copy(host, x);
  y = 2.0f * x + x;
  report("inner product", viennacl::linalg::inner_prod(x, y), sum, 1e-2);
  report("norm", viennacl::linalg::norm_2(y), std::sqrt(3 * sum), 1e-2);
}

void dense_product() {
  constexpr int kSize = 48;
  std::vector<std::vector<float>> a(kSize, std::vector<float>(kSize)), b = a, c = a;
  for (int i = 0; i < kSize; ++i)
    for (int j = 0; j < kSize; ++j) a[i][j] = 0.1f * ((i + 2 * j) % 7), b[i][j] = 0.2f * ((3 * i + j) % 5);
  viennacl::matrix<float> da(kSize, kSize), db(kSize, kSize), dc(kSize, kSize);
  viennacl::copy(a, da);
  viennacl::copy(b, db);
  dc = viennacl::linalg::prod(da, db);
  viennacl::copy(dc, c);
  double worst = 0, trace = 0;
  for (int i = 0; i < kSize; ++i)
    for (int j = 0; j < kSize; ++j) {
      double expected = 0;
      for (int k = 0; k < kSize; ++k) expected += a[i][k] * b[k][j];
      worst = std::fmax(worst, std::fabs(expected - c[i][j]));
      if (i == j) trace += expected;
    }
  double ours = 0;
  for (int i = 0; i < kSize; ++i) ours += c[i][i];
  report("product", ours, trace, 1e-2);
  wrong += !(worst < 1e-3);
}

void sparse_solver(int side) {
  const int count = side * side;
  std::vector<std::map<unsigned, float>> grid(count);
  for (int i = 0; i < count; ++i) {
    grid[i][i] = 4.1f;
    if (i % side > 0) grid[i][i - 1] = -1;
    if (i % side < side - 1) grid[i][i + 1] = -1;
    if (i >= side) grid[i][i - side] = -1;
    if (i + side < count) grid[i][i + side] = -1;
  }
  viennacl::compressed_matrix<float> matrix(count, count);
  viennacl::copy(grid, matrix);
  std::vector<float> host(count, 1.0f);
  viennacl::vector<float> right(count);
  viennacl::copy(host, right);
  viennacl::linalg::cg_tag tag(1e-6, 300);
  viennacl::vector<float> solution = viennacl::linalg::solve(matrix, right, tag);
  viennacl::vector<float> rest = viennacl::linalg::prod(matrix, solution);
  rest -= right;
  std::printf("iterations %u\n", static_cast<unsigned>(tag.iters()));
  std::printf("solution %.7g\n", static_cast<double>(viennacl::linalg::norm_2(solution)));
  const float size = viennacl::linalg::norm_2(rest);
  wrong += !(size < 1e-3f * side);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    std::printf("device %s\n", viennacl::ocl::current_device().name().c_str());
    vectors();
    dense_product();
    sparse_solver(argc > 1 ? std::atoi(argv[1]) : 24);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return wrong ? 1 : 0;
}
