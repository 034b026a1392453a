#include "awkward/awkward/part.hpp"

#include <bit>

namespace awkward {
namespace {

cl_uint mixed(cl_uint value) {
  value = (value ^ (value >> 16)) * 0x7feb352d;
  value = (value ^ (value >> 15)) * 0x846ca68b;
  return value ^ (value >> 16);
}

// The arguments of an enqueue that say what to wait for and where the event goes.
class Waits {
 public:
  Waits(const std::vector<cl_event>& after, Event* event) : after_{after}, event_{event} {}
  ~Waits() {
    if (made_ != nullptr) event_->reset(made_);
  }
  Waits(const Waits&) = delete;
  Waits& operator=(const Waits&) = delete;

  cl_uint count() const { return static_cast<cl_uint>(after_.size()); }
  const cl_event* list() const { return after_.empty() ? nullptr : after_.data(); }
  cl_event* event() { return event_ == nullptr ? nullptr : &made_; }

 private:
  const std::vector<cl_event>& after_;
  Event* event_;
  cl_event made_ = nullptr;
};

void set_argument(const Kernel& kernel, cl_uint index, const Buffer& buffer) {
  cl_mem handle = buffer.get();
  check(clSetKernelArg(kernel.get(), index, sizeof handle, &handle), "clSetKernelArg");
}

void launch(cl_command_queue queue, const Kernel& kernel, size_t words, Waits& waits) {
  check(clEnqueueNDRangeKernel(queue, kernel.get(), 1, nullptr, &words, nullptr, waits.count(), waits.list(),
                               waits.event()),
        "clEnqueueNDRangeKernel");
}

}  // namespace

void scramble(Words& data, cl_uint key) {
  for (size_t i = 0; i < data.size(); ++i) data[i] = mixed(data[i] + key) + static_cast<cl_uint>(i);
}

Words combined(const Words& a, const Words& b) {
  Words result(a.size());
  for (size_t i = 0; i < a.size(); ++i) result[i] = std::rotl(a[i], 7) + (b[i] ^ 0x9e3779b9);
  return result;
}

Words random_words(size_t count, std::uint64_t seed) {
  Random random{seed};
  Words words(count);
  for (cl_uint& word : words) word = static_cast<cl_uint>(random.next());
  return words;
}

void expect_words(const std::string& what, const Words& results, const Words& expected) {
  workload::expect_same(what.c_str(), results, expected);
}

Queue make_queue(const Frame& frame, cl_command_queue_properties properties) {
  cl_int code = CL_SUCCESS;
  Queue queue{clCreateCommandQueue(frame.context(), frame.device(), properties, &code)};
  check(code, "clCreateCommandQueue");
  return queue;
}

Buffer make_buffer(const Frame& frame, size_t words, cl_mem_flags flags, void* host) {
  cl_int code = CL_SUCCESS;
  Buffer buffer{clCreateBuffer(frame.context(), flags, words * sizeof(cl_uint), host, &code)};
  check(code, "clCreateBuffer");
  return buffer;
}

void Commands::write(const Buffer& to, const Words& from, const std::vector<cl_event>& after, Event* event) {
  Waits waits{after, event};
  check(clEnqueueWriteBuffer(queue_, to.get(), CL_FALSE, 0, from.size() * sizeof(cl_uint), from.data(), waits.count(),
                             waits.list(), waits.event()),
        "clEnqueueWriteBuffer");
}

void Commands::read(const Buffer& from, Words& to, const std::vector<cl_event>& after, Event* event) {
  Waits waits{after, event};
  check(clEnqueueReadBuffer(queue_, from.get(), CL_FALSE, 0, to.size() * sizeof(cl_uint), to.data(), waits.count(),
                            waits.list(), waits.event()),
        "clEnqueueReadBuffer");
}

void Commands::copy(const Buffer& from, const Buffer& to, size_t from_word, size_t to_word, size_t words,
                    const std::vector<cl_event>& after, Event* event) {
  Waits waits{after, event};
  check(clEnqueueCopyBuffer(queue_, from.get(), to.get(), from_word * sizeof(cl_uint), to_word * sizeof(cl_uint),
                            words * sizeof(cl_uint), waits.count(), waits.list(), waits.event()),
        "clEnqueueCopyBuffer");
}

void Commands::fill(const Buffer& to, cl_uint value, size_t from_word, size_t words, const std::vector<cl_event>& after,
                    Event* event) {
  Waits waits{after, event};
  check(clEnqueueFillBuffer(queue_, to.get(), &value, sizeof value, from_word * sizeof(cl_uint),
                            words * sizeof(cl_uint), waits.count(), waits.list(), waits.event()),
        "clEnqueueFillBuffer");
}

void Commands::scramble(const Kernel& kernel, const Buffer& data, cl_uint key, size_t words,
                        const std::vector<cl_event>& after, Event* event) {
  Waits waits{after, event};
  set_argument(kernel, 0, data);
  check(clSetKernelArg(kernel.get(), 1, sizeof key, &key), "clSetKernelArg");
  launch(queue_, kernel, words, waits);
}

void Commands::combine(const Kernel& kernel, const Buffer& a, const Buffer& b, const Buffer& to, size_t words,
                       const std::vector<cl_event>& after, Event* event) {
  Waits waits{after, event};
  set_argument(kernel, 0, a);
  set_argument(kernel, 1, b);
  set_argument(kernel, 2, to);
  launch(queue_, kernel, words, waits);
}

void* Commands::map(const Buffer& buffer, cl_map_flags flags, size_t from_word, size_t words, Event* event) {
  const std::vector<cl_event> nothing;
  Waits waits{nothing, event};
  cl_int code = CL_SUCCESS;
  void* pointer =
      clEnqueueMapBuffer(queue_, buffer.get(), event == nullptr ? CL_TRUE : CL_FALSE, flags,
                         from_word * sizeof(cl_uint), words * sizeof(cl_uint), 0, nullptr, waits.event(), &code);
  check(code, "clEnqueueMapBuffer");
  return pointer;
}

void Commands::unmap(const Buffer& buffer, void* pointer) {
  check(clEnqueueUnmapMemObject(queue_, buffer.get(), pointer, 0, nullptr, nullptr), "clEnqueueUnmapMemObject");
}

}  // namespace awkward
