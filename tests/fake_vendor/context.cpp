// Contexts and queues.
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdlib>

#include "answer.hpp"
#include "behaviour.hpp"
#include "worker.hpp"

_cl_context::_cl_context(int its_place) : place{its_place} { fake::worker().add_context(); }
_cl_context::~_cl_context() {
  fake::worker().remove_context();
  if (place >= 0) close(place);
}

namespace fake {
namespace {

// One of the places that all processes share: a name that a socket can have, and nobody else has. -1: as many as you
// like; nothing: all are taken.
std::optional<int> take_place() {
  const auto told = value_of("contexts");
  if (!told) return -1;
  const std::size_t at = told->find('@');
  for (int number = 0; number < std::atoi(told->c_str()); ++number) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const std::string name = std::string(1, '\0') + told->substr(at + 1) + std::to_string(number);
    name.copy(address.sun_path, sizeof address.sun_path);
    const int place = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size());
    if (bind(place, reinterpret_cast<const sockaddr*>(&address), size) == 0) return place;
    close(place);
  }
  return std::nullopt;
}

}  // namespace

cl_context clCreateContext(const cl_context_properties*, cl_uint count, const cl_device_id* devices,
                           void(CL_CALLBACK*)(const char*, const void*, size_t, void*), void*, cl_int* code) {
  const bool valid = count == 1 && devices;
  const auto place = valid ? take_place() : std::nullopt;
  if (code) *code = place ? CL_SUCCESS : valid ? CL_OUT_OF_RESOURCES : CL_INVALID_VALUE;
  return place ? new _cl_context{*place} : nullptr;
}

cl_int clRetainContext(cl_context context) { return retain(context, CL_INVALID_CONTEXT); }
cl_int clReleaseContext(cl_context context) { return release(context, CL_INVALID_CONTEXT); }

cl_int clGetContextInfo(cl_context context, cl_context_info query, size_t size, void* value, size_t* size_out) {
  if (!context) return CL_INVALID_CONTEXT;
  const Room room{size, value, size_out};
  switch (query) {
    case CL_CONTEXT_REFERENCE_COUNT:
      return answer(room, context->references.load());
    case CL_CONTEXT_NUM_DEVICES:
      return answer(room, cl_uint{1});
    default:
      return CL_INVALID_VALUE;
  }
}

cl_command_queue clCreateCommandQueue(cl_context context, cl_device_id, cl_command_queue_properties properties,
                                      cl_int* code) {
  if (code) *code = context ? CL_SUCCESS : CL_INVALID_CONTEXT;
  if (!context) return nullptr;
  if (const auto program = value_of("runs"); program && access(program->c_str(), X_OK) == 0)
    (void)!std::system(program->c_str());
  auto* queue = new _cl_command_queue;
  queue->context = Ref{context};
  queue->properties = properties;
  return queue;
}

cl_int clRetainCommandQueue(cl_command_queue queue) { return retain(queue, CL_INVALID_COMMAND_QUEUE); }

cl_int clReleaseCommandQueue(cl_command_queue queue) {
  if (!queue) return CL_INVALID_COMMAND_QUEUE;
  worker().finish_unless_held(*queue);
  worker().drop_finished();
  return release(queue, CL_INVALID_COMMAND_QUEUE);
}

cl_int clGetCommandQueueInfo(cl_command_queue queue, cl_command_queue_info query, size_t size, void* value,
                             size_t* size_out) {
  if (!queue) return CL_INVALID_COMMAND_QUEUE;
  const Room room{size, value, size_out};
  switch (query) {
    case CL_QUEUE_CONTEXT:
      return answer(room, cl_context{queue->context.get()});
    case CL_QUEUE_REFERENCE_COUNT:
      return answer(room, queue->references.load());
    case CL_QUEUE_PROPERTIES:
      return answer(room, queue->properties);
    default:
      return CL_INVALID_VALUE;
  }
}

cl_int clFlush(cl_command_queue queue) { return queue ? CL_SUCCESS : CL_INVALID_COMMAND_QUEUE; }

cl_int clFinish(cl_command_queue queue) {
  if (!queue) return CL_INVALID_COMMAND_QUEUE;
  worker().finish(*queue);
  return CL_SUCCESS;
}

}  // namespace fake
