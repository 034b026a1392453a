// A program that has used a device, says which and whose driver, and waits until its input ends. --without: it uses
// none. --set-up: it only makes a context and a queue, and says how many milliseconds that took from its first call.
#include <chrono>
#include <cstdio>
#include <cstring>
#include <optional>

#include "opencl.hpp"

int main(int argc, char** argv) {
  std::optional<bench::Device> device;
  const bool is_set_up = argc > 1 && std::strcmp(argv[1], "--set-up") == 0;
  const auto start = std::chrono::steady_clock::now();
  if (argc > 1 && std::strcmp(argv[1], "--without") == 0) {
    std::printf("none\tnone\n");
  } else {
    try {
      device.emplace(bench::Choice{});
      if (is_set_up) {
        const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
        std::printf("%s\t%s\t%.3f\n", device->text(CL_DEVICE_NAME).c_str(), device->text(CL_DRIVER_VERSION).c_str(),
                    took.count());
        return 0;
      }
      device->build(bench::kCountingKernels);
      const auto tick = device->kernel("tick");
      cl_uint count = 0;
      const auto buffer = device->buffer(sizeof count, CL_MEM_COPY_HOST_PTR, &count);
      cl_mem argument = buffer.get();
      bench::check(clSetKernelArg(tick.get(), 0, sizeof argument, &argument), "clSetKernelArg");
      device->launch(tick.get());
      device->read(buffer.get(), 0, sizeof count, &count);
      std::printf("%s\t%s %s\n", device->text(CL_DEVICE_NAME).c_str(), device->platform_text(CL_PLATFORM_NAME).c_str(),
                  device->text(CL_DRIVER_VERSION).c_str());
    } catch (const bench::Failure& failure) {
      std::fprintf(stderr, "idle: %s\n", failure.what());
      return 1;
    }
  }
  std::fflush(stdout);
  while (std::getchar() != EOF) continue;
}
