#include "command/executor.hpp"

#include "objects/profile.hpp"

namespace grus {

std::vector<Executor*>& executors_in_use() {
  static auto* const executors = new std::vector<Executor*>{starting_executors().begin(), starting_executors().end()};
  return *executors;
}

const Result<Bytes>& told_of(Device& device, cl_device_info query) {
  return device.facts.get(query, [&] {
    auto answer = executor_of(device).device_info(device.id(), query);
    return profile_to_tell() ? profile_to_tell()->instead_of(query, std::move(answer)) : answer;
  });
}

std::uint64_t round_trips_so_far() {
  std::uint64_t all = 0;
  for (const Executor* executor : executors_in_use()) all += executor->round_trips();
  return all;
}

BuildOrder order_for(const Program& program) {
  BuildOrder order;
  order.program = program.id();
  order.context = program.context->id();
  for (const auto& device : program.devices) order.program_devices.push_back(device->id());
  return order;
}

}  // namespace grus
