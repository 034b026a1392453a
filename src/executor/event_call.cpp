#include "executor/event_call.hpp"

#include "executor/vendor.hpp"

namespace grus {

Result<std::shared_ptr<EventCall>> EventCall::make(cl_event event, cl_int status, Call call) {
  const auto made = std::make_shared<EventCall>(std::move(call));
  auto owner = std::make_unique<std::shared_ptr<EventCall>>(made);
  const auto reached = [](cl_event, cl_int now, void* data) {
    const std::unique_ptr<std::shared_ptr<EventCall>> mine{static_cast<std::shared_ptr<EventCall>*>(data)};
    (*mine)->make_it(now);
  };
  const cl_int code = functions(event).clSetEventCallback(event, status, reached, owner.get());
  if (code != CL_SUCCESS) return Failure{code};
  (void)owner.release();  // the callback's now
  // Oclgrind doesn't call for what has happened already.
  if (const cl_int now = status_of(event); now <= status) made->make_it(now);
  return made;
}

}  // namespace grus
