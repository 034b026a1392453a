// Four threads at once, each with its own queue in the shared context; each also waits for an event of its neighbour.
#include <future>
#include <thread>

#include "awkward/awkward/part.hpp"

namespace awkward {
namespace {

constexpr size_t kThreads = 4;
constexpr unsigned kSteps = 12;

class Threads : public Part {
 public:
  Threads(Frame& frame, size_t words) : words_{words} {
    for (size_t i = 0; i < kThreads; ++i) {
      workers_.push_back(
          {make_queue(frame), frame.kernel("scramble"), frame.kernel("combine"), frame.buffer_of<cl_uint>(words), {}});
    }
    shared_ = random_words(words, 11000);
    shared_on_device_ = frame.buffer_of<cl_uint>(words, CL_MEM_READ_ONLY);
    frame.send(shared_on_device_, shared_);
  }

  void round(Frame& frame, unsigned number, Checksum& checksum) override {
    std::vector<std::promise<cl_event>> written(kThreads);
    std::vector<std::shared_future<cl_event>> neighbours;
    for (auto& event : written) neighbours.push_back(event.get_future().share());
    std::vector<std::future<Words>> results;
    for (size_t i = 0; i < kThreads; ++i) {
      results.push_back(std::async(
          std::launch::async, [&, i] { return work(frame, number, i, written[i], neighbours[(i + 1) % kThreads]); }));
    }
    for (auto& result : results) result.wait();  // all, before any failure is looked at
    for (auto& result : results) checksum.add(result.get());
  }

 private:
  struct Worker {
    Queue queue;
    Kernel scramble;
    Kernel combine;
    Buffer first;  // for the neighbour to read
    Event written;
  };

  Words work(const Frame& frame, unsigned number, size_t index, std::promise<cl_event>& written,
             const std::shared_future<cl_event>& neighbour_written) {
    bool told = false;
    const Words input = random_words(words_, 12000 + number * kThreads + index);  // there until the queue is done
    try {
      Worker& worker = workers_[index];
      Commands commands{worker.queue.get()};
      commands.write(worker.first, input);
      commands.scramble(worker.scramble, worker.first, number, words_, {}, &worker.written);
      commands.flush();
      told = true;
      written.set_value(worker.written.get());
      return with_neighbour(frame, number, index, neighbour_written, steps(frame, number, index));
    } catch (...) {
      if (!told) written.set_exception(std::current_exception());
      clFinish(workers_[index].queue.get());
      throw;
    }
  }

  // Work of the thread alone, in buffers that come and go.
  Words steps(const Frame& frame, unsigned number, size_t index) {
    Worker& worker = workers_[index];
    Commands commands{worker.queue.get()};
    Random random{13000 + number * kThreads + index};
    Words expected = random_words(words_, 14000 + number * kThreads + index);
    auto data = make_buffer(frame, words_);
    commands.write(data, expected);
    commands.finish();  // expected changes below
    Words result(words_);
    for (unsigned step = 0; step < kSteps; ++step) {
      const auto key = static_cast<cl_uint>(random.next());
      auto next = make_buffer(frame, words_);
      commands.scramble(worker.scramble, data, key, words_);
      commands.combine(worker.combine, data, shared_on_device_, next, words_);
      commands.read(next, result);
      data = std::move(next);  // releases a buffer that commands still use
      scramble(expected, key);
      expected = combined(expected, shared_);
      commands.finish();
      expect_words("thread " + std::to_string(index), result, expected);
    }
    return result;
  }

  // The neighbour's queue writes what this one reads, ordered by an event alone.
  Words with_neighbour(const Frame& frame, unsigned number, size_t index,
                       const std::shared_future<cl_event>& neighbour_written, const Words& own) {
    Worker& worker = workers_[index];
    const cl_event ready = neighbour_written.get();
    Commands commands{worker.queue.get()};
    const auto to = make_buffer(frame, words_);
    const auto mine = make_buffer(frame, words_);
    commands.write(mine, own);
    commands.combine(worker.combine, mine, workers_[(index + 1) % kThreads].first, to, words_, {ready});
    Words result(words_);
    commands.read(to, result);
    commands.finish();
    Words theirs = random_words(words_, 12000 + number * kThreads + (index + 1) % kThreads);
    scramble(theirs, number);
    expect_words("a neighbour's words in thread " + std::to_string(index), result, combined(own, theirs));
    return result;
  }

  size_t words_;
  std::vector<Worker> workers_;
  Words shared_;
  Buffer shared_on_device_;
};

}  // namespace

std::unique_ptr<Part> make_threads(Frame& frame, size_t words) { return std::make_unique<Threads>(frame, words); }

}  // namespace awkward
