// The STREAM triad on arrays that stay on the host, like SHOC's Triad: they pass the device block by block on two
// queues, so that copies to it, the kernel and copies from it overlap.
#include "crane/sizes.hpp"
#include "frame/workload.hpp"
#include "triad.cl.hpp"

namespace {

using namespace workload;

constexpr size_t kBlock = size_t{1} << 20;  // floats
constexpr float kScale = 1.75F;

// Memory that the driver can copy from and to without stopping the program: a mapped buffer of its own.
class HostArray {
 public:
  HostArray(Frame& frame, cl_command_queue queue, size_t count) : queue_{queue} {
    frame.timed(Phase::allocate, [&] {
      cl_int code = CL_SUCCESS;
      buffer_.reset(clCreateBuffer(frame.context(), CL_MEM_ALLOC_HOST_PTR, count * sizeof(float), nullptr, &code));
      check(code, "clCreateBuffer");
      data_ = static_cast<float*>(clEnqueueMapBuffer(queue, buffer_.get(), CL_TRUE, CL_MAP_READ | CL_MAP_WRITE, 0,
                                                     count * sizeof(float), 0, nullptr, nullptr, &code));
      check(code, "clEnqueueMapBuffer");
    });
  }
  ~HostArray() {
    clEnqueueUnmapMemObject(queue_, buffer_.get(), data_, 0, nullptr, nullptr);
    clFinish(queue_);
  }
  HostArray(const HostArray&) = delete;
  HostArray& operator=(const HostArray&) = delete;

  float* data() const { return data_; }

 private:
  cl_command_queue queue_;
  Buffer buffer_;
  float* data_ = nullptr;
};

// What a queue works with. It is in order, so that each block's copies wait for the kernel of the block before.
struct Lane {
  cl_command_queue queue;
  Kernel triad;
  Buffer a;
  Buffer b;
  Buffer c;
};

class Triad : public Workload {
 public:
  explicit Triad(size_t size) : count_{round_up(size, kBlock)}, results_(count_) {}

  void prepare(Frame& frame) override {
    group_ = group_size(frame);
    frame.build(kKernels, define("GROUP", group_));
    second_queue_ = frame.timed(Phase::init, [&] {
      cl_int code = CL_SUCCESS;
      bench::Queue queue{clCreateCommandQueue(frame.context(), frame.device(), 0, &code)};
      check(code, "clCreateCommandQueue");
      return queue;
    });
    for (auto* queue : {frame.queue(), second_queue_.get()}) lanes_.push_back(make_lane(frame, queue));
    for (auto* array : {&a_, &b_, &c_}) *array = std::make_unique<HostArray>(frame, second_queue_.get(), count_);
    Random random{1};
    for (size_t i = 0; i < count_; ++i) {
      b_->data()[i] = eighths(random);
      c_->data()[i] = eighths(random);
    }
  }
  void iterate(Frame& frame) override {
    for (size_t start = 0; start < count_; start += kBlock) pass(frame, lanes_[start / kBlock % lanes_.size()], start);
    // So that whoever waits for the frame's queue waits for both.
    frame.timed(Phase::kernels, [&] {
      cl_event done = nullptr;
      check(clEnqueueMarkerWithWaitList(second_queue_.get(), 0, nullptr, &done), "clEnqueueMarkerWithWaitList");
      const bench::Event owned{done};
      check(clFlush(second_queue_.get()), "clFlush");
      check(clEnqueueBarrierWithWaitList(frame.queue(), 1, &done, nullptr), "clEnqueueBarrierWithWaitList");
    });
  }
  void collect(Frame& frame) override {
    frame.finish();
    results_.assign(a_->data(), a_->data() + count_);
  }

  void verify() const override {
    for (size_t i = 0; i < count_; ++i) {
      const double expected = double{b_->data()[i]} + double{kScale} * double{c_->data()[i]};
      if (results_[i] != expected)
        throw Wrong("a[" + std::to_string(i) + "] is " + std::to_string(results_[i]) + ", not " +
                    std::to_string(expected));
    }
  }
  void add_to(Checksum& checksum) const override { checksum.add(results_); }

 private:
  // Few enough digits that neither the product nor the sum rounds: devices with and without a fused operation agree.
  static float eighths(Random& random) { return (static_cast<float>(random.below(1 << 16)) - (1 << 15)) / 8; }

  Lane make_lane(Frame& frame, cl_command_queue queue) const {
    Lane lane{queue, frame.kernel("triad"), frame.buffer_of<float>(kBlock), frame.buffer_of<float>(kBlock),
              frame.buffer_of<float>(kBlock)};
    cl_uint index = 0;
    for (cl_mem buffer : {lane.a.get(), lane.b.get(), lane.c.get()})
      check(clSetKernelArg(lane.triad.get(), index++, sizeof buffer, &buffer), "clSetKernelArg");
    check(clSetKernelArg(lane.triad.get(), index, sizeof kScale, &kScale), "clSetKernelArg");
    return lane;
  }

  void pass(Frame& frame, const Lane& lane, size_t start) const {
    constexpr size_t kBytes = kBlock * sizeof(float);
    frame.timed(Phase::to_device, [&] {
      check(
          clEnqueueWriteBuffer(lane.queue, lane.b.get(), CL_FALSE, 0, kBytes, b_->data() + start, 0, nullptr, nullptr),
          "clEnqueueWriteBuffer");
      check(
          clEnqueueWriteBuffer(lane.queue, lane.c.get(), CL_FALSE, 0, kBytes, c_->data() + start, 0, nullptr, nullptr),
          "clEnqueueWriteBuffer");
    });
    frame.timed(Phase::kernels, [&] {
      const size_t items = kBlock / 4;
      check(clEnqueueNDRangeKernel(lane.queue, lane.triad.get(), 1, nullptr, &items, &group_, 0, nullptr, nullptr),
            "clEnqueueNDRangeKernel");
    });
    frame.timed(Phase::from_device, [&] {
      check(clEnqueueReadBuffer(lane.queue, lane.a.get(), CL_FALSE, 0, kBytes, a_->data() + start, 0, nullptr, nullptr),
            "clEnqueueReadBuffer");
      check(clFlush(lane.queue), "clFlush");
    });
  }

  size_t count_;
  size_t group_ = 0;
  std::vector<float> results_;
  bench::Queue second_queue_;
  std::vector<Lane> lanes_;
  std::unique_ptr<HostArray> a_;
  std::unique_ptr<HostArray> b_;
  std::unique_ptr<HostArray> c_;
};

}  // namespace

int main(int argc, char** argv) {
  return run_workload<Triad>(argc, argv,
                             {.name = "triad",
                              .what = "a = b + s c, streamed through the device in blocks on two queues",
                              .size = size_t{1} << 24,
                              .size_is = "values",
                              .iterations = 10,
                              .quick_size = size_t{1} << 21});
}
