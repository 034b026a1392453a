// Memory that the program didn't write reads as zeroes, however it is looked at first. Each case uses fresh objects.
// With
// --leave BYTES it fills so much of the device's memory instead, says "left" and waits to be killed.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "device.hpp"

namespace {

constexpr std::size_t kSize = std::size_t{3} << 20;
constexpr unsigned char kMark = 0x5A;

constexpr const char* kSource = R"CLC(
kernel void copy(global const uchar* from, global uchar* to) { to[get_global_id(0)] = from[get_global_id(0)]; }
kernel void mark(global uchar* to) { to[get_global_id(0)] = 0x5A; }
)CLC";

Opened g_device;
cl_device_id g_id;
cl_kernel g_copy;
cl_kernel g_mark;
cl_command_queue g_other;  // in order
cl_command_queue g_any_order;

cl_mem new_buffer(std::size_t size = kSize, cl_mem_flags flags = CL_MEM_READ_WRITE) {
  cl_int code = CL_SUCCESS;
  cl_mem buffer = clCreateBuffer(g_device.context, flags, size, nullptr, &code);
  check(code, "buffer");
  return buffer;
}

std::vector<unsigned char> contents_of(cl_mem buffer, cl_command_queue queue, std::size_t size = kSize) {
  std::vector<unsigned char> found(size, kMark);
  check(clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, size, found.data(), 0, nullptr, nullptr), "read");
  return found;
}

void expect(const std::vector<unsigned char>& found, std::size_t first, std::size_t end, unsigned char value,
            const char* what) {
  for (std::size_t at = first; at < end; ++at) {
    if (found[at] == value) continue;
    std::fprintf(stderr, "%s: %02x instead of %02x at %zu\n", what, found[at], value, at);
    std::exit(1);
  }
}

void launch(cl_command_queue queue, cl_kernel kernel, std::initializer_list<cl_mem> arguments, std::size_t items) {
  cl_uint index = 0;
  for (cl_mem argument : arguments) check(clSetKernelArg(kernel, index++, sizeof argument, &argument), "argument");
  check(clEnqueueNDRangeKernel(queue, kernel, 1, nullptr, &items, nullptr, 0, nullptr, nullptr), "launch");
}

void test_reads() {
  for (cl_command_queue queue : {g_device.queue, g_other, g_any_order}) {
    cl_mem buffer = new_buffer();
    expect(contents_of(buffer, queue), 0, kSize, 0, "a read");
    clReleaseMemObject(buffer);
  }
}

void test_part_of_it_is_written() {
  const std::vector<unsigned char> marks(kSize, kMark);
  for (cl_command_queue queue : {g_device.queue, g_any_order}) {
    cl_mem buffer = new_buffer();
    check(clEnqueueWriteBuffer(queue, buffer, CL_TRUE, 100, 1000, marks.data(), 0, nullptr, nullptr), "write");
    check(clFinish(queue), "finish");
    const auto found = contents_of(buffer, queue);
    expect(found, 0, 100, 0, "before a write");
    expect(found, 100, 1100, kMark, "a write");
    expect(found, 1100, kSize, 0, "behind a write");
    clReleaseMemObject(buffer);
  }
}

void test_all_of_it_is_written() {
  const std::vector<unsigned char> marks(kSize, kMark);
  cl_mem buffer = new_buffer();
  check(clEnqueueWriteBuffer(g_device.queue, buffer, CL_FALSE, 0, kSize, marks.data(), 0, nullptr, nullptr), "write");
  expect(contents_of(buffer, g_device.queue), 0, kSize, kMark, "all that was written");
  clReleaseMemObject(buffer);
}

// In parts, from the beginning on; the last part isn't written, or by a fill.
void test_first_parts_are_written() {
  constexpr std::size_t kPart = kSize / 3;
  const std::vector<unsigned char> marks(kSize, kMark);
  const cl_uchar mark = kMark;
  for (cl_command_queue looks : {g_device.queue, g_other, g_any_order}) {
    for (const bool fills : {false, true}) {
      cl_mem buffer = new_buffer();
      for (const std::size_t at : {std::size_t{0}, kPart})
        check(clEnqueueWriteBuffer(g_device.queue, buffer, CL_FALSE, at, kPart, marks.data(), 0, nullptr, nullptr),
              "write");
      if (fills)
        check(clEnqueueFillBuffer(g_device.queue, buffer, &mark, 1, 2 * kPart, kPart, 0, nullptr, nullptr), "fill");
      if (looks != g_device.queue) check(clFinish(g_device.queue), "finish");
      const auto found = contents_of(buffer, looks);
      expect(found, 0, 2 * kPart, kMark, "parts that were written");
      expect(found, 2 * kPart, kSize, fills ? kMark : 0, "behind parts that were written");
      clReleaseMemObject(buffer);
    }
  }
}

void test_parts_written_in_several_queues() {
  constexpr std::size_t kPart = kSize / 4;
  const std::vector<unsigned char> marks(kSize, kMark);
  for (int turn = 0; turn < 20; ++turn) {
    cl_mem buffer = new_buffer();
    cl_int code = CL_SUCCESS;
    cl_command_queue passing = clCreateCommandQueue(g_device.context, g_id, 0, &code);
    check(code, "queue");
    for (cl_command_queue queue : {passing, g_other})
      check(clEnqueueWriteBuffer(queue, buffer, CL_FALSE, queue == passing ? 0 : kPart, kPart, marks.data(), 0, nullptr,
                                 nullptr),
            "write");
    check(clFlush(passing), "flush");
    check(clReleaseCommandQueue(passing), "release");
    check(clFinish(g_other), "finish");
    const auto found = contents_of(buffer, turn % 2 == 0 ? g_device.queue : g_other);
    expect(found, kPart, 2 * kPart, kMark, "what the second queue wrote");
    expect(found, 2 * kPart, kSize, 0, "behind what two queues wrote");
    for (std::size_t at = 0; at < kPart; ++at)
      expect(found, at, at + 1, found[at] == 0 ? 0 : kMark, "what is on its way");
    clReleaseMemObject(buffer);
  }
}

// What waits for something that fails never happens.
void test_write_that_fails() {
  const std::vector<unsigned char> marks(kSize, kMark);
  cl_int code = CL_SUCCESS;
  cl_event never = clCreateUserEvent(g_device.context, &code);
  check(code, "user event");
  cl_mem buffer = new_buffer();
  cl_command_queue queue = clCreateCommandQueue(g_device.context, g_id, 0, &code);
  check(code, "queue");
  (void)clEnqueueWriteBuffer(queue, buffer, CL_FALSE, 0, kSize, marks.data(), 1, &never, nullptr);
  check(clSetUserEventStatus(never, -1), "status");
  (void)clFinish(queue);
  expect(contents_of(buffer, g_other), 0, kSize, 0, "what was never written");
  clReleaseMemObject(buffer);
  clReleaseCommandQueue(queue);
  clReleaseEvent(never);
}

void test_kernels() {
  cl_mem from = new_buffer();
  cl_mem to = new_buffer();
  launch(g_device.queue, g_mark, {to}, 10);
  expect(contents_of(to, g_device.queue), 10, kSize, 0, "behind what a kernel wrote");
  launch(g_device.queue, g_copy, {from, to}, kSize);
  expect(contents_of(to, g_device.queue), 0, kSize, 0, "what a kernel read");
  clReleaseMemObject(from);
  clReleaseMemObject(to);
}

// No order is asked for between the two queues: each writes a part of its own.
void test_two_queues() {
  for (int turn = 0; turn < 50; ++turn) {
    cl_mem busy = new_buffer();
    cl_mem buffer = new_buffer();
    const std::vector<unsigned char> marks(kSize, kMark);
    launch(g_device.queue, g_copy, {busy, buffer}, 1);
    check(clEnqueueWriteBuffer(g_other, buffer, CL_FALSE, kSize - 10, 10, marks.data(), 0, nullptr, nullptr), "write");
    check(clFlush(g_device.queue), "flush");
    check(clFinish(g_other), "finish");
    check(clFinish(g_device.queue), "finish");
    const auto found = contents_of(buffer, turn % 2 == 0 ? g_device.queue : g_other);
    expect(found, 0, kSize - 10, 0, "beside another queue's");
    expect(found, kSize - 10, kSize, kMark, "what another queue wrote");
    clReleaseMemObject(busy);
    clReleaseMemObject(buffer);
  }
}

void test_views() {
  cl_mem buffer = new_buffer();
  std::array<cl_mem, 2> views{};
  for (std::size_t index = 0; index < views.size(); ++index) {
    const cl_buffer_region region{index * 4096, 8192};
    cl_int code = CL_SUCCESS;
    views[index] = clCreateSubBuffer(buffer, CL_MEM_READ_WRITE, CL_BUFFER_CREATE_TYPE_REGION, &region, &code);
    check(code, "sub-buffer");
  }
  const cl_uchar mark = kMark;
  check(clEnqueueFillBuffer(g_device.queue, views[0], &mark, 1, 0, 8192, 0, nullptr, nullptr), "fill");
  const auto found = contents_of(views[1], g_device.queue, 8192);
  expect(found, 0, 4096, kMark, "what is another view's, too");
  expect(found, 4096, 8192, 0, "a view");
  expect(contents_of(buffer, g_other), 12288, kSize, 0, "behind views");
  for (cl_mem view : views) clReleaseMemObject(view);
  clReleaseMemObject(buffer);
}

void test_copies_and_maps() {
  cl_mem from = new_buffer();
  cl_mem to = new_buffer(kSize, CL_MEM_READ_WRITE | CL_MEM_ALLOC_HOST_PTR);
  check(clEnqueueCopyBuffer(g_device.queue, from, to, 0, 100, 100, 0, nullptr, nullptr), "copy");
  expect(contents_of(to, g_device.queue), 0, kSize, 0, "a copy");
  cl_int code = CL_SUCCESS;
  cl_mem mapped = new_buffer();
  const auto* const seen = static_cast<const unsigned char*>(
      clEnqueueMapBuffer(g_device.queue, mapped, CL_TRUE, CL_MAP_READ, 0, kSize, 0, nullptr, nullptr, &code));
  check(code, "map");
  expect({seen, seen + kSize}, 0, kSize, 0, "a mapping");
  check(clEnqueueUnmapMemObject(g_device.queue, mapped, const_cast<unsigned char*>(seen), 0, nullptr, nullptr),
        "unmap");
  for (cl_mem buffer : {from, to, mapped}) clReleaseMemObject(buffer);
}

void test_image(const cl_image_desc& desc, const std::array<std::size_t, 3>& region, cl_channel_type type) {
  const cl_image_format format{CL_RGBA, type};
  cl_int code = CL_SUCCESS;
  cl_mem image = clCreateImage(g_device.context, CL_MEM_READ_WRITE, &format, &desc, nullptr, &code);
  check(code, "image");
  const std::array<std::size_t, 3> origin{};
  std::vector<unsigned char> found(region[0] * region[1] * region[2] * (type == CL_FLOAT ? 16 : 4), kMark);
  check(clEnqueueReadImage(g_device.queue, image, CL_TRUE, origin.data(), region.data(), 0, 0, found.data(), 0, nullptr,
                           nullptr),
        "image read");
  expect(found, 0, found.size(), 0, "an image");
  clReleaseMemObject(image);
}

void test_images() {
  const auto desc_of = [](cl_mem_object_type type, std::array<std::size_t, 3> sizes, std::size_t count = 0) {
    cl_image_desc desc{};
    desc.image_type = type;
    desc.image_width = sizes[0];
    desc.image_height = sizes[1];
    desc.image_depth = sizes[2];
    desc.image_array_size = count;
    return desc;
  };
  const auto flat = desc_of(CL_MEM_OBJECT_IMAGE2D, {130, 70, 0});
  const auto solid = desc_of(CL_MEM_OBJECT_IMAGE3D, {33, 20, 9});
  const auto row = desc_of(CL_MEM_OBJECT_IMAGE1D, {500, 0, 0});
  const auto stack = desc_of(CL_MEM_OBJECT_IMAGE2D_ARRAY, {40, 30, 0}, 5);
  for (const cl_channel_type type : {CL_UNORM_INT8, CL_FLOAT, CL_UNSIGNED_INT8}) {
    test_image(flat, {130, 70, 1}, type);
    test_image(solid, {33, 20, 9}, type);
    test_image(row, {500, 1, 1}, type);
    test_image(stack, {40, 30, 5}, type);
  }
}

// More than there are names for clears that are under way.
void test_many() {
  std::vector<cl_mem> all(6000);
  for (cl_mem& buffer : all) buffer = new_buffer(64);
  for (cl_mem buffer : all) launch(g_device.queue, g_mark, {buffer}, 32);
  check(clFinish(g_device.queue), "finish");
  for (cl_mem buffer : all) {
    const auto found = contents_of(buffer, g_other, 64);
    expect(found, 0, 32, kMark, "what a kernel wrote");
    expect(found, 32, 64, 0, "behind it");
    clReleaseMemObject(buffer);
  }
}

void leave(std::size_t bytes) {
  std::vector<cl_mem> all;
  for (std::size_t left = bytes; left != 0; left -= std::min(left, std::size_t{64} << 20)) {
    const std::size_t size = std::min(left, std::size_t{64} << 20);
    all.push_back(new_buffer(size));
    check(clEnqueueFillBuffer(g_device.queue, all.back(), &kMark, 1, 0, size, 0, nullptr, nullptr), "fill");
  }
  check(clFinish(g_device.queue), "finish");
  std::printf("left\n");
  std::fflush(stdout);
  (void)std::getchar();
}

}  // namespace

int main(int count, char** arguments) {
  g_device = open_device();
  if (count > 2 && std::string{arguments[1]} == "--leave") {
    leave(std::stoul(arguments[2]));
    return 0;
  }
  check(clGetCommandQueueInfo(g_device.queue, CL_QUEUE_DEVICE, sizeof g_id, &g_id, nullptr), "device");
  cl_int code = CL_SUCCESS;
  g_other = clCreateCommandQueue(g_device.context, g_id, 0, &code);
  check(code, "queue");
  g_any_order = clCreateCommandQueue(g_device.context, g_id, CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE, &code);
  check(code, "queue");
  const char* source = kSource;
  cl_program program = clCreateProgramWithSource(g_device.context, 1, &source, nullptr, &code);
  check(clBuildProgram(program, 0, nullptr, "", nullptr, nullptr), "build");
  g_copy = clCreateKernel(program, "copy", &code);
  g_mark = clCreateKernel(program, "mark", &code);
  check(code, "kernel");
  test_reads();
  test_part_of_it_is_written();
  test_all_of_it_is_written();
  test_first_parts_are_written();
  test_parts_written_in_several_queues();
  test_write_that_fails();
  test_kernels();
  test_two_queues();
  test_views();
  test_copies_and_maps();
  test_images();
  test_many();
  if (count > 2 && std::string{arguments[1]} == "--search") {
    const std::size_t size = std::size_t{64} << 20;
    for (std::size_t left = std::stoul(arguments[2]); left != 0; left -= std::min(left, size))
      expect(contents_of(new_buffer(size), g_device.queue, size), 0, size, 0, "memory that another session had");
  }
  return 0;
}
