#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <vector>

#include "objects/queue.hpp"

namespace grus {

class Event : public Object {
 public:
  // Where the command is.
  enum class Place : std::uint8_t {
    above,     // held back, or a user event that is not finished
    below,     // an executor has it
    finished,  // above the seam, with status_ telling how: a finished user event, a command that was never sent
  };

  Event(Context& context_, Queue* queue_, cl_command_type type_)
      : context{&context_}, queue{queue_}, type{type_}, status_{is_user() ? CL_SUBMITTED : CL_QUEUED} {}
  ~Event() {
    if (created) context->below.load(std::memory_order_relaxed)->free(ObjectType::event, id());
  }

  bool is_user() const { return type == CL_COMMAND_USER; }
  Place place() const { return place_.load(std::memory_order_acquire); }
  cl_int status_above() const { return status_.load(std::memory_order_relaxed); }
  // To be called with the hold-back's mutex held if the event was ever above.
  void set_below() {
    created = true;
    place_.store(Place::below, std::memory_order_release);
  }
  void set_finished(cl_int status) {
    status_.store(status, std::memory_order_relaxed);
    place_.store(Place::finished, std::memory_order_release);
  }

  // When the command was queued, submitted, started, ended and completed, for a command of an executor that the session
  // has left.
  using Profile = std::array<cl_ulong, 5>;

  struct Callback {
    cl_int status;
    std::function<void(cl_int)> call;
  };

  const Ref<Context> context;
  const Ref<Queue> queue;
  const cl_command_type type;
  bool created = false;  // below the seam
  std::unique_ptr<Profile> profile;
  std::vector<Callback> callbacks;  // registered while above; guarded by the hold-back's mutex

 private:
  std::atomic<Place> place_{Place::above};
  std::atomic<cl_int> status_;
};

}  // namespace grus
