// clFFT transforms, each checked against a discrete Fourier transform computed on the CPU.
// usage: clfft_transforms [ROUNDS]
// Prints one line per transform with its error and a checksum of its output.
#include <clFFT.h>

#include <cmath>
#include <complex>
#include <numbers>
#include <vector>

#include "opencl_start.hpp"

namespace {

using Complex = std::complex<float>;
using Values = std::vector<Complex>;

struct Transform {
  const char* name;
  std::vector<std::size_t> lengths;  // fastest axis first
  clfftDirection direction;
  clfftResultLocation location;
};

const Transform kTransforms[] = {
    {"forward 256", {256}, CLFFT_FORWARD, CLFFT_INPLACE},
    {"forward 105", {105}, CLFFT_FORWARD, CLFFT_OUTOFPLACE},
    {"backward 343", {343}, CLFFT_BACKWARD, CLFFT_INPLACE},
    {"forward 32x16", {32, 16}, CLFFT_FORWARD, CLFFT_OUTOFPLACE},
    {"backward 8x6x5", {8, 6, 5}, CLFFT_BACKWARD, CLFFT_INPLACE},
};

std::size_t total(const std::vector<std::size_t>& lengths) {
  std::size_t product = 1;
  for (const auto length : lengths) product *= length;
  return product;
}

Values test_signal(std::size_t count) {
  Values values(count);
  for (std::size_t i = 0; i < count; ++i)
    values[i] = {static_cast<float>(std::sin(0.3 * i) + 0.1 * (i % 7)), static_cast<float>(std::cos(0.11 * i * i))};
  return values;
}

// One axis after the other, by definition of the transform; clFFT scales the backward transform by 1/N.
Values reference(const Transform& transform, const Values& input) {
  std::vector<std::complex<double>> now(input.begin(), input.end());
  std::size_t stride = 1;
  const double sign = transform.direction == CLFFT_FORWARD ? -1 : 1;
  for (const auto length : transform.lengths) {
    auto next = now;
    for (std::size_t i = 0; i < now.size(); ++i) {
      const std::size_t k = i / stride % length, first = i - k * stride;
      std::complex<double> sum = 0;
      for (std::size_t j = 0; j < length; ++j)
        sum += now[first + j * stride] *
               std::polar(1.0, sign * 2 * std::numbers::pi * double(j * k % length) / double(length));
      next[i] = transform.direction == CLFFT_FORWARD ? sum : sum / double(length);
    }
    now = next;
    stride *= length;
  }
  return Values(now.begin(), now.end());
}

void check_fft(clfftStatus status, const char* call) { check(static_cast<cl_int>(status), call); }

Values on_device(OpenCl& cl, const Transform& transform, const Values& input) {
  const std::size_t bytes = input.size() * sizeof(Complex);
  clfftPlanHandle plan;
  const auto dimensions = static_cast<clfftDim>(transform.lengths.size());
  check_fft(clfftCreateDefaultPlan(&plan, cl.context, dimensions, transform.lengths.data()), "clfftCreateDefaultPlan");
  check_fft(clfftSetResultLocation(plan, transform.location), "clfftSetResultLocation");
  check_fft(clfftBakePlan(plan, 1, &cl.queue, nullptr, nullptr), "clfftBakePlan");
  cl_int code;
  cl_mem in = clCreateBuffer(cl.context, CL_MEM_READ_WRITE, bytes, nullptr, &code);
  check(code, "clCreateBuffer");
  cl_mem out = clCreateBuffer(cl.context, CL_MEM_READ_WRITE, bytes, nullptr, &code);
  check(code, "clCreateBuffer");
  check(clEnqueueWriteBuffer(cl.queue, in, CL_TRUE, 0, bytes, input.data(), 0, nullptr, nullptr),
        "clEnqueueWriteBuffer");
  cl_event done;
  check_fft(clfftEnqueueTransform(plan, transform.direction, 1, &cl.queue, 0, nullptr, &done, &in, &out, nullptr),
            "clfftEnqueueTransform");
  Values result(input.size());
  const cl_mem where = transform.location == CLFFT_INPLACE ? in : out;
  check(clEnqueueReadBuffer(cl.queue, where, CL_TRUE, 0, bytes, result.data(), 1, &done, nullptr),
        "clEnqueueReadBuffer");
  clReleaseEvent(done);
  clReleaseMemObject(in);
  clReleaseMemObject(out);
  check_fft(clfftDestroyPlan(&plan), "clfftDestroyPlan");
  return result;
}

bool report(const Transform& transform, const Values& ours, const Values& expected) {
  double error = 0, size = 0, checksum = 0;
  for (std::size_t i = 0; i < ours.size(); ++i) {
    error += std::norm(ours[i] - expected[i]);
    size += std::norm(expected[i]);
    checksum += ours[i].real() * (1 + i % 13) + ours[i].imag() * (1 + i % 11);
  }
  const bool ok = std::sqrt(error / size) < 1e-5;  // false for NaN too
  std::printf("%s checksum %.9g%s\n", transform.name, checksum, ok ? "" : " WRONG");
  return ok;
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 1;
  OpenCl cl;
  clfftSetupData setup;
  check_fft(clfftInitSetupData(&setup), "clfftInitSetupData");
  check_fft(clfftSetup(&setup), "clfftSetup");
  int wrong = 0;
  for (int round = 0; round < rounds; ++round)
    for (const auto& transform : kTransforms) {
      const auto input = test_signal(total(transform.lengths));
      const auto result = on_device(cl, transform, input);
      if (round == 0) wrong += !report(transform, result, reference(transform, input));
    }
  clfftTeardown();
  return wrong ? 1 : 0;
}
