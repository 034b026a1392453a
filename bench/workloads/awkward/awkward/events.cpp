// User events that hold commands back until another thread completes them, and callbacks that go on with the work.
#include <cstdio>
#include <cstdlib>
#include <future>
#include <thread>

#include "awkward/awkward/part.hpp"

namespace awkward {
namespace {

using namespace std::chrono_literals;

constexpr unsigned kLinks = 6;
constexpr auto kPatience = 120s;  // then a callback isn't coming any more

Event make_user_event(const Frame& frame) {
  cl_int code = CL_SUCCESS;
  Event event{clCreateUserEvent(frame.context(), &code)};
  check(code, "clCreateUserEvent");
  return event;
}

cl_int status_of(const Event& event) {
  cl_int status = 0;
  check(clGetEventInfo(event.get(), CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status, nullptr),
        "clGetEventInfo");
  return status;
}

void wait_for(const Event& event) {
  cl_event handle = event.get();
  check(clWaitForEvents(1, &handle), "clWaitForEvents");
}

class Events : public Part {
 public:
  Events(Frame& frame, size_t words)
      : words_{words},
        scramble_{frame.kernel("scramble")},
        scramble_elsewhere_{frame.kernel("scramble")},
        scramble_in_callback_{frame.kernel("scramble")},
        held_back_{make_queue(frame)},
        elsewhere_{make_queue(frame)},
        data_{frame.buffer_of<cl_uint>(words)},
        other_{frame.buffer_of<cl_uint>(words)} {}

  void round(Frame& frame, unsigned number, Checksum& checksum) override {
    hold_back(frame, number, checksum);
    chain(frame, number, checksum);
  }

 private:
  // A whole sequence waits for the user event, while another queue must be free to work.
  void hold_back(const Frame& frame, unsigned number, Checksum& checksum) {
    const Words input = random_words(words_, 1000 + number);
    Words result(words_);
    Words other = random_words(words_, 2000 + number);
    const Event go = make_user_event(frame);
    Event read;
    Commands commands{held_back_.get()};
    commands.write(data_, input, {go.get()});
    commands.scramble(scramble_, data_, number, words_);
    commands.read(data_, result, {}, &read);
    commands.flush();

    std::promise<void> now;
    cl_int completed = CL_SUCCESS;
    std::thread completes{[&, ready = now.get_future()] {
      ready.wait();
      completed = clSetUserEventStatus(go.get(), CL_COMPLETE);
    }};
    try {
      Words expected = other;
      Commands aside{elsewhere_.get()};
      aside.write(other_, other);
      aside.scramble(scramble_elsewhere_, other_, number + 1, words_);
      aside.read(other_, other);
      aside.finish();
      scramble(expected, number + 1);
      expect_words("result while others wait", other, expected);
      if (status_of(read) == CL_COMPLETE) throw Wrong("a command didn't wait for the user event");
    } catch (...) {
      now.set_value();
      completes.join();
      clFinish(held_back_.get());  // what it writes to is about to go
      throw;
    }
    now.set_value();
    completes.join();
    check(completed, "clSetUserEventStatus");
    wait_for(read);
    Words expected = input;
    scramble(expected, number);
    expect_words("result of commands that waited", result, expected);
    checksum.add(result);
    checksum.add(other);
  }

  // Each link's callback enqueues the next link. The last one completes a user event, for which a read waits that was
  // enqueued first of all.
  struct Chain {
    Events* part;
    Commands commands;
    unsigned link = 0;
    cl_event last;
    Event event;  // of the link that runs
    std::promise<void> done;
  };

  void chain(const Frame& frame, unsigned number, Checksum& checksum) {
    const Words input = random_words(words_, 3000 + number);
    Words result(words_);
    const Event last = make_user_event(frame);
    Event read;
    Commands reader{held_back_.get()};
    reader.read(data_, result, {last.get()}, &read);
    reader.flush();

    Chain chain{this, Commands{elsewhere_.get()}, 0, last.get(), {}, {}};
    auto done = chain.done.get_future();
    chain.commands.write(data_, input, {}, &chain.event);
    check(clSetEventCallback(chain.event.get(), CL_COMPLETE, next_link, &chain), "clSetEventCallback");
    chain.commands.flush();
    if (done.wait_for(kPatience) != std::future_status::ready) {
      // A callback may still come and use what is on this stack: nothing can be tidied up.
      std::fputs("awkward: wrong result: a callback didn't come\n", stderr);
      std::_Exit(1);
    }
    wait_for(read);
    done.get();
    Words expected = input;
    for (unsigned link = 1; link <= kLinks; ++link) scramble(expected, link);
    expect_words("result of a chain of callbacks", result, expected);
    checksum.add(result);
  }

  static void CL_CALLBACK next_link(cl_event, cl_int status, void* data) {
    Chain& chain = *static_cast<Chain*>(data);
    try {
      if (status != CL_COMPLETE) throw Wrong("a callback came with status " + std::to_string(status));
      if (chain.link == kLinks) {
        check(clSetUserEventStatus(chain.last, CL_COMPLETE), "clSetUserEventStatus");
        chain.done.set_value();  // the chain may be gone after this
        return;
      }
      ++chain.link;
      // Kept until it is replaced: the chain goes on from the new event's callback, which may come before this returns.
      Event made;
      chain.commands.scramble(chain.part->scramble_in_callback_, chain.part->data_, chain.link, chain.part->words_, {},
                              &made);
      const cl_event next = made.get();
      Commands commands = chain.commands;
      std::swap(chain.event, made);
      check(clSetEventCallback(next, CL_COMPLETE, next_link, &chain), "clSetEventCallback");
      commands.flush();
    } catch (...) {
      clSetUserEventStatus(chain.last, CL_COMPLETE);
      chain.done.set_exception(std::current_exception());
    }
  }

  size_t words_;
  Kernel scramble_;
  Kernel scramble_elsewhere_;
  Kernel scramble_in_callback_;
  Queue held_back_;
  Queue elsewhere_;
  Buffer data_;
  Buffer other_;
};

}  // namespace

std::unique_ptr<Part> make_events(Frame& frame, size_t words) { return std::make_unique<Events>(frame, words); }

}  // namespace awkward
