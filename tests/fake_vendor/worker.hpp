// The driver's thread, which carries commands out one after the other. It starts with the first context and ends with
// the last, so that the library can be unloaded in between.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "objects.hpp"

namespace fake {

struct Command {
  Ref<_cl_command_queue> queue;
  Ref<_cl_event> event;
  std::vector<Ref<_cl_event>> waits;
  std::function<void()> work;  // keeps alive what it uses
};

class Worker {
 public:
  Worker();

  void add_context();
  void remove_context();

  void enqueue(Command command);
  void wait_for(_cl_event& event);
  void finish(const _cl_command_queue& queue);
  void finish_unless_held(const _cl_command_queue& queue);
  void let_go();
  // Destroys the commands that are done. Only the program's threads do: the worker would end itself with the last of
  // the contexts.
  void drop_finished();

  cl_int status_of(const _cl_event& event);
  cl_ulong time_of(const _cl_event& event, std::size_t which);
  void add_callback(_cl_event& event, _cl_event::Callback callback);

 private:
  void run();
  void carry_out(Command& command, std::unique_lock<std::mutex>& lock);

  std::mutex mutex_;  // guards everything here, the events' states and the queues' counts
  std::condition_variable changed_;
  std::deque<Command> waiting_;
  std::vector<Command> finished_;
  bool held_ = false;
  bool ends_ = false;
  std::size_t contexts_ = 0;
  void* left_behind_ = nullptr;
  std::thread thread_;
};

Worker& worker();

}  // namespace fake
