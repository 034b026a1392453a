// How long objects live: references as the program counts them, what keeps what alive, and that nothing is left behind.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <future>
#include <string>
#include <vector>

#include "base/sanitizer.hpp"
#include "unit/bad_input/objects.hpp"

#ifdef __SANITIZE_ADDRESS__
// It keeps freed memory to notice who uses it, but less than it would: that has stopped growing when a test measures.
extern "C" [[gnu::visibility("default")]] const char* __asan_default_options() { return "quarantine_size_mb=4"; }
#endif

namespace grus::test {
namespace {

const Objects& own() { return world().own; }

// --- References
// --------------------------------------------------------------------------------------------------------

struct Counted {
  const char* name;
  cl_int invalid;
  std::function<void*()> create;
  std::function<cl_int(void*)> retain;
  std::function<cl_int(void*)> release;
  std::function<cl_int(void*, cl_uint*)> count;
};

template <typename T>
Counted counted(const char* name, T (*create)(), cl_int(CL_API_CALL* retain)(T), cl_int(CL_API_CALL* release)(T),
                cl_int(CL_API_CALL* info)(T, cl_uint, std::size_t, void*, std::size_t*), cl_uint query) {
  const auto count = [=](void* object, cl_uint* answer) {
    return info(static_cast<T>(object), query, sizeof *answer, answer, nullptr);
  };
  return {name,
          invalid(T{}),
          create,
          [=](void* object) { return retain(static_cast<T>(object)); },
          [=](void* object) { return release(static_cast<T>(object)); },
          count};
}

template <typename T>
T make() {
  return another(T{});
}
cl_device_id make_sub_device() {
  const cl_device_partition_property one_unit[] = {CL_DEVICE_PARTITION_BY_COUNTS, 1,
                                                   CL_DEVICE_PARTITION_BY_COUNTS_LIST_END, 0};
  cl_device_id device = nullptr;
  cl().clCreateSubDevices(world().device, one_unit, 1, &device, nullptr);
  return device;
}
cl_mem make_square() { return make_image(own().context, CL_MEM_OBJECT_IMAGE2D, CL_MEM_READ_WRITE); }
cl_mem make_sub_buffer() {
  const cl_buffer_region region{0, 128};
  return cl().clCreateSubBuffer(own().buffer, 0, CL_BUFFER_CREATE_TYPE_REGION, &region, nullptr);
}
cl_event make_command_event() {
  cl_event event = nullptr;
  cl().clEnqueueMarkerWithWaitList(own().queue, 0, nullptr, &event);
  return event;
}
cl_kernel make_clone() { return cl().clCloneKernel(own().kernel, nullptr); }

std::vector<Counted> all_counted() {
  const cl_icd_dispatch& c = cl();
  return {
      counted("Context", make<cl_context>, c.clRetainContext, c.clReleaseContext, c.clGetContextInfo,
              CL_CONTEXT_REFERENCE_COUNT),
      counted("SubDevice", make_sub_device, c.clRetainDevice, c.clReleaseDevice, c.clGetDeviceInfo,
              CL_DEVICE_REFERENCE_COUNT),
      counted("Queue", make<cl_command_queue>, c.clRetainCommandQueue, c.clReleaseCommandQueue, c.clGetCommandQueueInfo,
              CL_QUEUE_REFERENCE_COUNT),
      counted("Buffer", make<cl_mem>, c.clRetainMemObject, c.clReleaseMemObject, c.clGetMemObjectInfo,
              CL_MEM_REFERENCE_COUNT),
      counted("SubBuffer", make_sub_buffer, c.clRetainMemObject, c.clReleaseMemObject, c.clGetMemObjectInfo,
              CL_MEM_REFERENCE_COUNT),
      counted("Image", make_square, c.clRetainMemObject, c.clReleaseMemObject, c.clGetMemObjectInfo,
              CL_MEM_REFERENCE_COUNT),
      counted("Sampler", make<cl_sampler>, c.clRetainSampler, c.clReleaseSampler, c.clGetSamplerInfo,
              CL_SAMPLER_REFERENCE_COUNT),
      counted("Program", make<cl_program>, c.clRetainProgram, c.clReleaseProgram, c.clGetProgramInfo,
              CL_PROGRAM_REFERENCE_COUNT),
      counted("Kernel", make<cl_kernel>, c.clRetainKernel, c.clReleaseKernel, c.clGetKernelInfo,
              CL_KERNEL_REFERENCE_COUNT),
      counted("ClonedKernel", make_clone, c.clRetainKernel, c.clReleaseKernel, c.clGetKernelInfo,
              CL_KERNEL_REFERENCE_COUNT),
      counted("UserEvent", make<cl_event>, c.clRetainEvent, c.clReleaseEvent, c.clGetEventInfo,
              CL_EVENT_REFERENCE_COUNT),
      counted("CommandEvent", make_command_event, c.clRetainEvent, c.clReleaseEvent, c.clGetEventInfo,
              CL_EVENT_REFERENCE_COUNT),
  };
}

TEST(References, AreCountedAndOverReleaseIsRefused) {
  for (const Counted& type : all_counted()) {
    SCOPED_TRACE(type.name);
    void* object = type.create();
    ASSERT_NE(object, nullptr);
    const auto count = [&] {
      cl_uint references = 0;
      EXPECT_EQ(type.count(object, &references), CL_SUCCESS);
      return references;
    };
    EXPECT_EQ(count(), 1u);
    for (cl_uint references = 2; references <= 5; ++references) {
      EXPECT_EQ(type.retain(object), CL_SUCCESS);
      EXPECT_EQ(count(), references);
    }
    for (cl_uint references = 4; references >= 1; --references) {
      EXPECT_EQ(type.release(object), CL_SUCCESS);
      EXPECT_EQ(count(), references);
    }
    EXPECT_EQ(cl().clFinish(own().queue), CL_SUCCESS);
    EXPECT_EQ(type.release(object), CL_SUCCESS);
    for (int again = 0; again < 3; ++again) {
      cl_uint references = 0;
      EXPECT_EQ(type.release(object), type.invalid);
      EXPECT_EQ(type.retain(object), type.invalid);
      EXPECT_EQ(type.count(object, &references), type.invalid);
    }
  }
}

TEST(References, OfRootDevicesAreNotCounted) {
  for (int time = 0; time < 3; ++time) EXPECT_EQ(cl().clReleaseDevice(world().device), CL_SUCCESS);
  EXPECT_EQ(cl().clRetainDevice(world().device), CL_SUCCESS);
  cl_uint references = 0;
  EXPECT_EQ(cl().clGetDeviceInfo(world().device, CL_DEVICE_REFERENCE_COUNT, sizeof references, &references, nullptr),
            CL_SUCCESS);
  EXPECT_EQ(references, 1u);
}

// --- What keeps what alive
// -----------------------------------------------------------------------------------------------

bool is_valid(cl_context context) {
  return cl().clGetContextInfo(context, CL_CONTEXT_DEVICES, 0, nullptr, nullptr) == CL_SUCCESS;
}
bool is_valid(cl_program program) {
  return cl().clGetProgramInfo(program, CL_PROGRAM_CONTEXT, 0, nullptr, nullptr) == CL_SUCCESS;
}
bool is_valid(cl_mem memory) { return cl().clGetMemObjectInfo(memory, CL_MEM_TYPE, 0, nullptr, nullptr) == CL_SUCCESS; }

TEST(Context, OutlivesItsReleaseForAsLongAsAQueueLives) {
  cl_context context = make<cl_context>();
  cl_command_queue queue = cl().clCreateCommandQueue(context, world().device, 0, nullptr);
  EXPECT_EQ(cl().clReleaseContext(context), CL_SUCCESS);
  EXPECT_EQ(cl().clReleaseContext(context), CL_INVALID_CONTEXT) << "the queue's reference is not the program's";
  EXPECT_TRUE(is_valid(context));

  // The queue works, and so does the context, though the program holds no reference.
  cl_mem buffer = cl().clCreateBuffer(context, 0, 64, nullptr, nullptr);
  ASSERT_NE(buffer, nullptr);
  cl_uint word = 42;
  EXPECT_EQ(cl().clEnqueueWriteBuffer(queue, buffer, CL_TRUE, 0, sizeof word, &word, 0, nullptr, nullptr), CL_SUCCESS);
  cl_context of_queue = nullptr;
  EXPECT_EQ(cl().clGetCommandQueueInfo(queue, CL_QUEUE_CONTEXT, sizeof of_queue, &of_queue, nullptr), CL_SUCCESS);
  EXPECT_EQ(of_queue, context);
  EXPECT_EQ(cl().clReleaseMemObject(buffer), CL_SUCCESS);

  EXPECT_TRUE(is_valid(context));
  EXPECT_EQ(cl().clReleaseCommandQueue(queue), CL_SUCCESS);
  EXPECT_FALSE(is_valid(context));
  EXPECT_EQ(cl().clReleaseContext(context), CL_INVALID_CONTEXT);
}

TEST(Context, CanBeRetainedAgainWhileAQueueLives) {
  cl_context context = make<cl_context>();
  cl_command_queue queue = cl().clCreateCommandQueue(context, world().device, 0, nullptr);
  EXPECT_EQ(cl().clReleaseContext(context), CL_SUCCESS);
  EXPECT_EQ(cl().clRetainContext(context), CL_SUCCESS);
  EXPECT_EQ(cl().clReleaseCommandQueue(queue), CL_SUCCESS);
  EXPECT_TRUE(is_valid(context));
  EXPECT_EQ(cl().clReleaseContext(context), CL_SUCCESS);
  EXPECT_FALSE(is_valid(context));
}

TEST(Context, TellsWhenItIsGone) {
  std::promise<cl_context> promise;
  auto gone = promise.get_future();
  const auto tell = [](cl_context context, void* user_data) {
    static_cast<std::promise<cl_context>*>(user_data)->set_value(context);
  };
  cl_context context = make<cl_context>();
  cl_event event = cl().clCreateUserEvent(context, nullptr);
  ASSERT_EQ(cl().clSetContextDestructorCallback(context, tell, &promise), CL_SUCCESS);
  EXPECT_EQ(cl().clReleaseContext(context), CL_SUCCESS);
  EXPECT_NE(gone.wait_for(std::chrono::seconds{0}), std::future_status::ready) << "the event still needs it";
  EXPECT_EQ(cl().clReleaseEvent(event), CL_SUCCESS);
  ASSERT_EQ(gone.wait_for(std::chrono::seconds{60}), std::future_status::ready);
  EXPECT_EQ(gone.get(), context);
}

TEST(Program, OutlivesItsReleaseForAsLongAsAKernelLives) {
  cl_program program = make<cl_program>();
  ASSERT_EQ(cl().clBuildProgram(program, 0, nullptr, "", nullptr, nullptr), CL_SUCCESS);
  cl_kernel kernel = cl().clCreateKernel(program, "second", nullptr);
  ASSERT_NE(kernel, nullptr);
  EXPECT_EQ(cl().clReleaseProgram(program), CL_SUCCESS);
  EXPECT_EQ(cl().clReleaseProgram(program), CL_INVALID_PROGRAM);
  EXPECT_TRUE(is_valid(program));
  const std::size_t items = 4;
  cl().clSetKernelArg(kernel, 0, sizeof(cl_mem), &own().buffer);
  EXPECT_EQ(cl().clEnqueueNDRangeKernel(own().queue, kernel, 1, nullptr, &items, nullptr, 0, nullptr, nullptr),
            CL_SUCCESS);
  EXPECT_EQ(cl().clReleaseKernel(kernel), CL_SUCCESS);
  EXPECT_EQ(cl().clFinish(own().queue), CL_SUCCESS);
  EXPECT_FALSE(is_valid(program));
}

TEST(Buffer, OutlivesItsReleaseForAsLongAsASubBufferLives) {
  cl_mem buffer = make<cl_mem>();
  const cl_buffer_region region{128, 128};
  cl_mem part = cl().clCreateSubBuffer(buffer, 0, CL_BUFFER_CREATE_TYPE_REGION, &region, nullptr);
  ASSERT_NE(part, nullptr);
  EXPECT_EQ(cl().clReleaseMemObject(buffer), CL_SUCCESS);
  EXPECT_EQ(cl().clReleaseMemObject(buffer), CL_INVALID_MEM_OBJECT);
  EXPECT_TRUE(is_valid(buffer));
  cl_uint word = 42;
  EXPECT_EQ(cl().clEnqueueWriteBuffer(own().queue, part, CL_TRUE, 0, sizeof word, &word, 0, nullptr, nullptr),
            CL_SUCCESS);
  EXPECT_EQ(cl().clReleaseMemObject(part), CL_SUCCESS);
  EXPECT_FALSE(is_valid(buffer));
}

// What was written through the pointer must arrive, whatever is released right after the unmap.
TEST(Buffer, TakesWhatWasMappedThoughEverythingIsReleasedAtOnce) {
  constexpr std::size_t kSize = std::size_t{4} << 20;
  cl_mem buffer = cl().clCreateBuffer(own().context, CL_MEM_READ_WRITE, kSize, nullptr, nullptr);
  for (int round = 1; round <= 20; ++round) {
    cl_command_queue queue = cl().clCreateCommandQueue(own().context, world().device, 0, nullptr);
    const cl_buffer_region half{kSize / 2, kSize / 2};
    cl_mem part = cl().clCreateSubBuffer(buffer, CL_MEM_READ_WRITE, CL_BUFFER_CREATE_TYPE_REGION, &half, nullptr);
    cl_int code = CL_SUCCESS;
    void* pointer = cl().clEnqueueMapBuffer(queue, part, CL_TRUE, CL_MAP_WRITE_INVALIDATE_REGION, 0, kSize / 2, 0,
                                            nullptr, nullptr, &code);
    ASSERT_EQ(code, CL_SUCCESS);
    std::memset(pointer, round, kSize / 2);
    cl_event unmapped = nullptr;
    ASSERT_EQ(cl().clEnqueueUnmapMemObject(queue, part, pointer, 0, nullptr, &unmapped), CL_SUCCESS);
    ASSERT_EQ(cl().clReleaseMemObject(part), CL_SUCCESS);
    ASSERT_EQ(cl().clReleaseCommandQueue(queue), CL_SUCCESS);
    std::vector<unsigned char> seen(kSize / 2);
    ASSERT_EQ(cl().clEnqueueReadBuffer(own().queue, buffer, CL_TRUE, kSize / 2, seen.size(), seen.data(), 1, &unmapped,
                                       nullptr),
              CL_SUCCESS);
    ASSERT_EQ(cl().clReleaseEvent(unmapped), CL_SUCCESS);
    const std::vector<unsigned char> expected(seen.size(), static_cast<unsigned char>(round));
    ASSERT_EQ(seen, expected);
  }
  ASSERT_EQ(cl().clReleaseMemObject(buffer), CL_SUCCESS);
}

TEST(SubDevice, OutlivesItsReleaseForAsLongAsAContextLives) {
  cl_device_id device = make_sub_device();
  cl_context context = cl().clCreateContext(nullptr, 1, &device, nullptr, nullptr, nullptr);
  ASSERT_NE(context, nullptr);
  EXPECT_EQ(cl().clReleaseDevice(device), CL_SUCCESS);
  EXPECT_EQ(cl().clReleaseDevice(device), CL_INVALID_DEVICE);
  cl_command_queue queue = cl().clCreateCommandQueue(context, device, 0, nullptr);
  EXPECT_NE(queue, nullptr);
  EXPECT_EQ(cl().clReleaseCommandQueue(queue), CL_SUCCESS);
  EXPECT_EQ(cl().clReleaseContext(context), CL_SUCCESS);
  EXPECT_EQ(cl().clGetDeviceInfo(device, CL_DEVICE_TYPE, 0, nullptr, nullptr), CL_INVALID_DEVICE);
}

// --- Calls that few programs make
// ------------------------------------------------------------------------------------------

TEST(BuiltInKernels, AreThoseThatTheDeviceLists) {
  std::string names(4096, '\0');
  std::size_t size = 0;
  ASSERT_EQ(cl().clGetDeviceInfo(world().device, CL_DEVICE_BUILT_IN_KERNELS, names.size(), names.data(), &size),
            CL_SUCCESS);
  names.resize(size - 1);
  cl_int code = 0;
  EXPECT_EQ(cl().clCreateProgramWithBuiltInKernels(own().context, 1, &world().device, "no.such.kernel", &code),
            nullptr);
  EXPECT_EQ(code, CL_INVALID_VALUE);
  if (names.empty()) GTEST_SKIP() << "the device has none";

  const std::string first = names.substr(0, names.find(';'));
  cl_program program = cl().clCreateProgramWithBuiltInKernels(own().context, 1, &world().device, first.c_str(), &code);
  ASSERT_EQ(code, CL_SUCCESS);
  std::size_t count = 0;
  EXPECT_EQ(cl().clGetProgramInfo(program, CL_PROGRAM_NUM_KERNELS, sizeof count, &count, nullptr), CL_SUCCESS);
  EXPECT_EQ(count, 1u);
  std::string listed(4096, '\0');
  EXPECT_EQ(cl().clGetProgramInfo(program, CL_PROGRAM_KERNEL_NAMES, listed.size(), listed.data(), &size), CL_SUCCESS);
  listed.resize(size - 1);
  EXPECT_EQ(listed, first);
  // PoCL lists kernels that its CPU device can't make, so there may be none, but then the code says so.
  cl_kernel kernel = cl().clCreateKernel(program, first.c_str(), &code);
  EXPECT_EQ(code, kernel ? CL_SUCCESS : CL_INVALID_PROGRAM_EXECUTABLE);
  EXPECT_EQ(cl().clReleaseKernel(kernel), kernel ? CL_SUCCESS : CL_INVALID_KERNEL);
  EXPECT_EQ(cl().clReleaseProgram(program), CL_SUCCESS);
}

TEST(ExtensionAddresses, AreGrussOwn) {
  const auto exported = library().extension_address;
  for (const char* name : {"clIcdGetPlatformIDsKHR", "clGetKernelSubGroupInfoKHR", "clCreateProgramWithILKHR",
                           "clCreateCommandQueueWithPropertiesKHR"}) {
    SCOPED_TRACE(name);
    EXPECT_NE(exported(name), nullptr);
    EXPECT_EQ(cl().clGetExtensionFunctionAddress(name), exported(name));
    EXPECT_EQ(cl().clGetExtensionFunctionAddressForPlatform(world().platform, name), exported(name));
    EXPECT_EQ(cl().clGetExtensionFunctionAddressForPlatform(nullptr, name), nullptr);
  }
  for (const char* name : {"clNoSuchFunction", "", "clCreateContext ", "clGetGLContextInfoKHR"}) {
    SCOPED_TRACE(name);
    EXPECT_EQ(exported(name), nullptr);
    EXPECT_EQ(cl().clGetExtensionFunctionAddressForPlatform(world().platform, name), nullptr);
  }
  EXPECT_EQ(exported(nullptr), nullptr);
  EXPECT_EQ(cl().clGetExtensionFunctionAddress(nullptr), nullptr);

  const auto create = reinterpret_cast<decltype(cl_icd_dispatch::clCreateCommandQueueWithProperties)>(
      exported("clCreateCommandQueueWithPropertiesKHR"));
  cl_command_queue queue = create(own().context, world().device, nullptr, nullptr);
  EXPECT_NE(queue, nullptr);
  EXPECT_EQ(cl().clReleaseCommandQueue(queue), CL_SUCCESS);
}

// --- Memory
// --------------------------------------------------------------------------------------------------------------------

std::size_t resident_bytes() {
  std::size_t pages = 0;
  std::ifstream statm{"/proc/self/statm"};
  statm >> pages >> pages;
  return pages * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

void create_and_release(int times) {
  for (int time = 0; time < times; ++time) {
    for (cl_mem memory : {make<cl_mem>(), make_sub_buffer()}) ASSERT_EQ(cl().clReleaseMemObject(memory), CL_SUCCESS);
    cl_kernel kernel = make<cl_kernel>();
    cl().clSetKernelArg(kernel, 0, sizeof(cl_mem), &own().buffer);
    ASSERT_EQ(cl().clReleaseKernel(kernel), CL_SUCCESS);
    ASSERT_EQ(cl().clReleaseSampler(make<cl_sampler>()), CL_SUCCESS);
    cl_event user_event = make<cl_event>();
    ASSERT_EQ(cl().clSetUserEventStatus(user_event, CL_COMPLETE), CL_SUCCESS);
    ASSERT_EQ(cl().clReleaseEvent(user_event), CL_SUCCESS);
    ASSERT_EQ(cl().clReleaseEvent(make_command_event()), CL_SUCCESS);
    if (time % 256 == 0) {
      ASSERT_EQ(cl().clFinish(own().queue), CL_SUCCESS);
    }
  }
  ASSERT_EQ(cl().clFinish(own().queue), CL_SUCCESS);
}

// 100,000 rounds, or a million with GRUS_LONG=1.
TEST(Memory, StaysFlatWhileObjectsComeAndGo) {
  const int rounds = std::getenv("GRUS_LONG") ? 1'000'000 : 100'000;
  create_and_release(rounds / 5);  // until slots are used again, and the allocator has what it needs
  const std::size_t before = resident_bytes();
  create_and_release(rounds);
  const std::size_t after = resident_bytes();
  constexpr std::size_t kAllowed = sanitizer::kIsOn ? 8 << 20 : 2 << 20;  // a sanitizer keeps books of its own
  EXPECT_LT(after, before + kAllowed) << "grew by " << (after - before) / 1024 << " KiB in " << rounds << " rounds";
  RecordProperty("growth_bytes", std::to_string(static_cast<long>(after) - static_cast<long>(before)));
  RecordProperty("rounds", rounds);
}

}  // namespace
}  // namespace grus::test
