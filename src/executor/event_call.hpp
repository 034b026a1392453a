// A call for when an event of a vendor's has happened: once, by the driver, or by who notices before it does.
#pragma once

#include <CL/cl.h>

#include <atomic>
#include <functional>
#include <memory>

#include "base/result.hpp"

namespace grus {

class EventCall {
 public:
  using Call = std::function<void(cl_int status)>;
  // Fails if the driver refuses. The call may come before this returns.
  static Result<std::shared_ptr<EventCall>> make(cl_event event, cl_int status, Call call);

  explicit EventCall(Call call) : call_{std::move(call)} {}

  void make_it(cl_int status) {
    if (!is_made_.exchange(true)) call_(status);
  }
  bool is_made() const { return is_made_; }

 private:
  const Call call_;
  std::atomic<bool> is_made_{false};
};

}  // namespace grus
