// A graph of commands in an out-of-order queue: only wait lists say what comes after what, and the result is unique.
#include <algorithm>

#include "awkward/awkward/part.hpp"

namespace awkward {
namespace {

constexpr size_t kBuffers = 10;
constexpr size_t kCommands = 60;

// Where the device has no such queue, the commands' own order will do.
cl_command_queue_properties out_of_order(const Frame& frame) {
  cl_command_queue_properties has = 0;
  check(clGetDeviceInfo(frame.device(), CL_DEVICE_QUEUE_PROPERTIES, sizeof has, &has, nullptr), "clGetDeviceInfo");
  return has & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE;
}

class Graph : public Part {
 public:
  Graph(Frame& frame, size_t words)
      : words_{words},
        scramble_{frame.kernel("scramble")},
        combine_{frame.kernel("combine")},
        queue_{make_queue(frame, out_of_order(frame))} {
    for (size_t i = 0; i < kBuffers; ++i) buffers_.push_back({frame.buffer_of<cl_uint>(words), {}, {}, {}});
  }

  void round(Frame&, unsigned number, Checksum& checksum) override {
    std::vector<Words> inputs;
    events_.clear();
    for (size_t i = 0; i < kBuffers; ++i) {
      inputs.push_back(random_words(words_, 4000 + number * kBuffers + i));
      buffers_[i].expected = inputs[i];
      command({}, i,
              [&](const auto& after, Event* event) { commands_.write(buffers_[i].buffer, inputs[i], after, event); });
    }
    Random random{5000 + number};
    for (size_t i = 0; i < kCommands; ++i) random_command(random);
    std::vector<Words> results(kBuffers, Words(words_));
    for (size_t i = 0; i < kBuffers; ++i) commands_.read(buffers_[i].buffer, results[i], {buffers_[i].written});
    commands_.finish();
    for (size_t i = 0; i < kBuffers; ++i) {
      expect_words("buffer " + std::to_string(i) + " of the graph", results[i], buffers_[i].expected);
      checksum.add(results[i]);
    }
  }

 private:
  struct Tracked {
    Buffer buffer;
    Words expected;
    cl_event written;            // by the last command that wrote it
    std::vector<cl_event> read;  // by commands since then
  };

  // A command that reads some buffers and writes one waits for whoever wrote those, and for whoever still reads this.
  template <class Enqueue>
  void command(const std::vector<size_t>& reads, size_t writes, Enqueue enqueue) {
    std::vector<cl_event> after;
    const auto wait_for = [&](cl_event event) {
      if (event != nullptr && std::find(after.begin(), after.end(), event) == after.end()) after.push_back(event);
    };
    for (const size_t read : reads) wait_for(buffers_[read].written);
    // The first commands of a round follow a finished one.
    if (events_.size() < kBuffers) {
      buffers_[writes].written = nullptr;
      buffers_[writes].read.clear();
    }
    wait_for(buffers_[writes].written);
    for (cl_event event : buffers_[writes].read) wait_for(event);
    Event event;
    enqueue(after, &event);
    for (const size_t read : reads) buffers_[read].read.push_back(event.get());
    buffers_[writes].written = event.get();
    buffers_[writes].read.clear();
    events_.push_back(std::move(event));
  }

  void random_command(Random& random) {
    const size_t to = random.below(kBuffers);
    const size_t one = (to + 1 + random.below(kBuffers - 1)) % kBuffers;
    const size_t two = (to + 1 + random.below(kBuffers - 1)) % kBuffers;
    const auto key = static_cast<cl_uint>(random.next());
    const size_t half = words_ / 2;
    Tracked& target = buffers_[to];
    switch (random.below(4)) {
      case 0:
        command({one, two}, to, [&](const auto& after, Event* event) {
          commands_.combine(combine_, buffers_[one].buffer, buffers_[two].buffer, target.buffer, words_, after, event);
        });
        target.expected = combined(buffers_[one].expected, buffers_[two].expected);
        break;
      case 1:
        command({}, to, [&](const auto& after, Event* event) {
          commands_.scramble(scramble_, target.buffer, key, words_, after, event);
        });
        scramble(target.expected, key);
        break;
      case 2:
        command({one}, to, [&](const auto& after, Event* event) {
          commands_.copy(buffers_[one].buffer, target.buffer, 1, half, half - 1, after, event);
        });
        std::copy_n(buffers_[one].expected.begin() + 1, half - 1,
                    target.expected.begin() + static_cast<std::ptrdiff_t>(half));
        break;
      default:
        command({}, to, [&](const auto& after, Event* event) {
          commands_.fill(target.buffer, key, half / 2, half, after, event);
        });
        std::fill_n(target.expected.begin() + static_cast<std::ptrdiff_t>(half / 2), half, key);
    }
  }

  size_t words_;
  Kernel scramble_;
  Kernel combine_;
  Queue queue_;
  Commands commands_{queue_.get()};
  std::vector<Tracked> buffers_;
  std::vector<Event> events_;  // of this round
};

}  // namespace

std::unique_ptr<Part> make_graph(Frame& frame, size_t words) { return std::make_unique<Graph>(frame, words); }

}  // namespace awkward
