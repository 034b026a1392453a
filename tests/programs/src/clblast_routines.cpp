// CLBlast routines of all three levels, each checked against plain loops on the CPU.
// usage: clblast_routines [ROUNDS]
// Prints one line per routine with a checksum of its result.
#include <clblast.h>

#include <cmath>
#include <vector>

#include "opencl_start.hpp"

namespace {

constexpr std::size_t kN = 96;  // matrices are kN x kN, row-major

template <typename T>
class Buffer {
 public:
  Buffer(OpenCl& cl, const std::vector<T>& values) : cl_(cl), count_(values.size()) {
    cl_int code;
    handle_ = clCreateBuffer(cl.context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, count_ * sizeof(T),
                             const_cast<T*>(values.data()), &code);
    check(code, "clCreateBuffer");
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() { clReleaseMemObject(handle_); }

  cl_mem operator()() const { return handle_; }
  std::vector<T> read() const {
    std::vector<T> values(count_);
    check(clEnqueueReadBuffer(cl_.queue, handle_, CL_TRUE, 0, count_ * sizeof(T), values.data(), 0, nullptr, nullptr),
          "clEnqueueReadBuffer");
    return values;
  }

 private:
  OpenCl& cl_;
  std::size_t count_;
  cl_mem handle_;
};

using Values = std::vector<float>;

Values test_values(std::size_t count, double seed) {
  Values values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<float>(std::sin(seed + 0.7 * i));
  return values;
}

bool report(bool print, const char* name, const Values& ours, const std::vector<double>& expected) {
  double error = 0, size = 0, checksum = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    error += (ours[i] - expected[i]) * (ours[i] - expected[i]);
    size += expected[i] * expected[i];
    checksum += ours[i] * static_cast<double>(1 + i % 17);
  }
  const bool ok = std::sqrt(error / size) < 1e-5;  // false for NaN too
  if (print) std::printf("%s checksum %.9g%s\n", name, checksum, ok ? "" : " WRONG");
  return ok;
}

void done(clblast::StatusCode status, const char* call) { check(static_cast<cl_int>(status), call); }

int run_all(OpenCl& cl, bool print) {
  const auto x = test_values(kN, 0.1), y = test_values(kN, 0.2);
  const auto a = test_values(kN * kN, 0.3), b = test_values(kN * kN, 0.4);
  const auto row = clblast::Layout::kRowMajor;
  const auto plain = clblast::Transpose::kNo, turned = clblast::Transpose::kYes;
  int wrong = 0;

  Buffer<float> bx(cl, x), ba(cl, a), bb(cl, b);
  {
    Buffer<float> by(cl, y);
    done(clblast::Axpy(kN, 1.5f, bx(), 0, 1, by(), 0, 1, &cl.queue, nullptr), "Axpy");
    std::vector<double> expected(kN);
    for (std::size_t i = 0; i < kN; ++i) expected[i] = 1.5 * x[i] + y[i];
    wrong += !report(print, "axpy", by.read(), expected);
  }
  {
    Buffer<float> by(cl, y), result(cl, {0});
    done(clblast::Dot<float>(kN, result(), 0, bx(), 0, 1, by(), 0, 1, &cl.queue, nullptr), "Dot");
    double sum = 0;
    for (std::size_t i = 0; i < kN; ++i) sum += double(x[i]) * y[i];
    wrong += !report(print, "dot", result.read(), {sum});
  }
  {
    Buffer<float> by(cl, y);
    done(clblast::Gemv(row, turned, kN, kN, 2.0f, ba(), 0, kN, bx(), 0, 1, 0.5f, by(), 0, 1, &cl.queue, nullptr),
         "Gemv");
    std::vector<double> expected(kN);
    for (std::size_t i = 0; i < kN; ++i) {
      for (std::size_t k = 0; k < kN; ++k) expected[i] += 2.0 * a[k * kN + i] * x[k];
      expected[i] += 0.5 * y[i];
    }
    wrong += !report(print, "gemv", by.read(), expected);
  }
  {
    Buffer<float> bc(cl, Values(kN * kN));
    cl_event event;
    done(clblast::Gemm(row, plain, turned, kN, kN, kN, 1.0f, ba(), 0, kN, bb(), 0, kN, 0.0f, bc(), 0, kN, &cl.queue,
                       &event),
         "Gemm");
    check(clWaitForEvents(1, &event), "clWaitForEvents");
    clReleaseEvent(event);
    std::vector<double> expected(kN * kN);
    for (std::size_t i = 0; i < kN; ++i)
      for (std::size_t j = 0; j < kN; ++j)
        for (std::size_t k = 0; k < kN; ++k) expected[i * kN + j] += double(a[i * kN + k]) * b[j * kN + k];
    wrong += !report(print, "gemm", bc.read(), expected);
  }
  {
    Buffer<float> turned_copy(cl, Values(kN * kN));
    done(clblast::Omatcopy(row, turned, kN, kN, 3.0f, ba(), 0, kN, turned_copy(), 0, kN, &cl.queue, nullptr),
         "Omatcopy");
    std::vector<double> expected(kN * kN);
    for (std::size_t i = 0; i < kN; ++i)
      for (std::size_t j = 0; j < kN; ++j) expected[j * kN + i] = 3.0 * a[i * kN + j];
    wrong += !report(print, "omatcopy", turned_copy.read(), expected);
  }
  return wrong;
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 1;
  OpenCl cl;
  int wrong = 0;
  for (int round = 0; round < rounds; ++round) wrong += run_all(cl, round == 0);
  return wrong ? 1 : 0;
}
