// What a message can be, and its head. A message is a head, a body and, for data of the program's, bulk that is never
// copied into the body.
#pragma once

#include <cstdint>
#include <tuple>

#include "command/command.hpp"

namespace grus::channel {

// No body is longer: programs' sources and binaries are bodies, their data is bulk.
inline constexpr std::uint32_t kLargestBody = 1U << 28;

enum class Kind : std::uint16_t {
  // From the client. Those that are answered carry a number, which the answer repeats.
  hello,
  device_info,
  name_device,
  count_sub_devices,
  create_sub_devices,
  timer,
  unload_compiler,
  create_context,
  create_queue,
  create_buffer,
  create_sub_buffer,
  create_image,
  create_sampler,
  supported_formats,
  watch_memory,
  free,
  check_program,
  build,
  program_binaries,
  device_identity,
  kernel_facts,
  create_kernel,
  kernel_group_info,
  kernel_sub_group_info,
  try_argument,
  flush,
  finish,
  wait,
  event_status,
  event_profile,
  when_event,
  when_idle,
  set_queue_property,
  // Memory that goes straight from one server to another: see server/session_pages.cpp
  send_pages,
  take_pages,
  expect_pages,
  connect_pages,
  end_pages,
  moving,           // how far a move from here, or to here, has come
  untold_failure,   // of a creation that wasn't answered
  command = 0x100,  // and as many more as there are commands
  // From the server
  answer = 0x200,
  notice,      // an error that a context's callback is to be told
  output,      // what kernels print
  ended,       // why there is nothing more to come
  step_aside,  // others need the room that the session takes, and it does nothing
};

enum class Crowd : std::uint16_t { no, yes };

struct Head {
  std::uint32_t body = 0;  // bytes
  Kind kind = Kind::hello;
  Crowd crowd = Crowd::no;          // several threads of the client use the connection
  std::uint64_t number = 0;         // of the question; 0: no answer is wanted
  std::uint64_t bulk : 63 = 0;      // bytes
  std::uint64_t in_blocks : 1 = 0;  // see packing.hpp
};

// Commands by their number on the wire. Native kernels are code of the program's own process and never leave it. Maps
// and unmaps of objects that don't live in shared memory become reads and writes.
using Commands = std::tuple<command::Launch, command::Read, command::Write, command::ReadRectangle,
                            command::WriteRectangle, command::Copy, command::CopyRectangle, command::Fill,
                            command::ReadImage, command::WriteImage, command::CopyImage, command::CopyImageToBuffer,
                            command::CopyBufferToImage, command::FillImage, command::Migrate, command::Marker,
                            command::Barrier, command::MapBuffer, command::MapImage, command::Unmap>;

template <typename Command, std::size_t kIndex = 0>
constexpr Kind kind_of() {
  if constexpr (std::is_same_v<Command, std::tuple_element_t<kIndex, Commands>>) {
    return static_cast<Kind>(static_cast<std::size_t>(Kind::command) + kIndex);
  } else {
    return kind_of<Command, kIndex + 1>();
  }
}

}  // namespace grus::channel
