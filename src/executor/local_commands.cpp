// LocalExecutor: commands on memory, and waiting for them.
#include "base/log.hpp"
#include "command/callbacks.hpp"
#include "executor/event_call.hpp"
#include "executor/local_place.hpp"

namespace grus {
namespace {

cl_bool flag(Blocking blocking) { return blocking == Blocking::yes ? CL_TRUE : CL_FALSE; }

Work transfer(std::size_t size) { return {Work::kTransfer, size}; }
// Of images, as if all had elements of the largest kind.
Work transfer(const Triple& region, std::size_t element_size = 16) {
  return transfer(region[0] * region[1] * region[2] * element_size);
}

}  // namespace

// A large blocking copy from or to ordinary memory goes through the staging buffers, where the device has its own
// memory.
template <typename Copy>
cl_int LocalExecutor::stage(const Placement& placement, std::size_t size, Copy copy) {
  const VendorQueue& to = *queues_[placement.queue];
  const Turn::Pass pass{to.turn, to.handle, transfer(size), to.in_order ? placement.event.value() : 0};
  std::vector<cl_event> waits;
  for (const ObjectId wait : placement.waits) waits.push_back(events_[wait].last);
  StagedEvents events;
  const cl_int code = copy(*queues_[placement.queue]->staging, waits, placement.event ? &events : nullptr);
  queues_[placement.queue]->busy.store(true, std::memory_order_relaxed);
  if (code == CL_SUCCESS && placement.event) events_.set(placement.event, {events.last, events.first});
  return code;
}

bool LocalExecutor::should_stage(const Placement& placement, std::size_t size, const void* host) const {
  if (placement.blocking == Blocking::no) return false;
  const Staging* staging = queues_[placement.queue]->staging.get();
  return staging && staging->wants(size) && !pinned_.contains(host, size);
}

cl_int LocalExecutor::submit(const command::Read& read, const Placement& placement) {
  cl_mem memory = memories_[read.memory].handle;
  if (read.is_for_mapping && placement.blocking == Blocking::yes) {
    // On an NVIDIA GPU a blocking read of 64 KiB takes a microsecond longer than this, and than the driver's own map.
    return place(placement, transfer(read.range.size),
                 [&](cl_command_queue queue, cl_uint count, const cl_event* waits, cl_event* event_out) {
                   cl_event event = nullptr;
                   cl_int code = functions(queue).clEnqueueReadBuffer(queue, memory, CL_FALSE, read.range.offset,
                                                                      read.range.size, read.to, count, waits, &event);
                   if (code != CL_SUCCESS) return code;
                   code = functions(queue).clWaitForEvents(1, &event);
                   if (code == CL_SUCCESS && event_out) {
                     *event_out = event;
                   } else {
                     functions(queue).clReleaseEvent(event);
                   }
                   return code;
                 });
  }
  if (should_stage(placement, read.range.size, read.to)) {
    return stage(placement, read.range.size, [&](Staging& staging, const auto& waits, StagedEvents* events) {
      return staging.read(memory, read.range.offset, read.range.size, read.to, waits, events);
    });
  }
  return place(placement, transfer(read.range.size), [&](cl_command_queue queue, auto... rest) {
    return functions(queue).clEnqueueReadBuffer(queue, memory, flag(placement.blocking), read.range.offset,
                                                read.range.size, read.to, rest...);
  });
}

cl_int LocalExecutor::submit(const command::Write& write, const Placement& placement) {
  cl_mem memory = memories_[write.memory].handle;
  if (should_stage(placement, write.range.size, write.from)) {
    return stage(placement, write.range.size, [&](Staging& staging, const auto& waits, StagedEvents* events) {
      return staging.write(memory, write.range.offset, write.range.size, write.from, waits, events);
    });
  }
  return place(placement, transfer(write.range.size), [&](cl_command_queue queue, auto... rest) {
    return functions(queue).clEnqueueWriteBuffer(queue, memory, flag(placement.blocking), write.range.offset,
                                                 write.range.size, write.from, rest...);
  });
}

cl_int LocalExecutor::submit(const command::ReadRectangle& read, const Placement& placement) {
  const command::Rectangle& r = read.rectangle;
  return place(placement, transfer(r.region, 1), [&](cl_command_queue queue, auto... rest) {
    return functions(queue).clEnqueueReadBufferRect(queue, memories_[read.memory].handle, flag(placement.blocking),
                                                    r.buffer_origin.data(), r.host_origin.data(), r.region.data(),
                                                    r.buffer_row_pitch, r.buffer_slice_pitch, r.host_row_pitch,
                                                    r.host_slice_pitch, read.to, rest...);
  });
}

cl_int LocalExecutor::submit(const command::WriteRectangle& write, const Placement& placement) {
  const command::Rectangle& r = write.rectangle;
  return place(placement, transfer(r.region, 1), [&](cl_command_queue queue, auto... rest) {
    return functions(queue).clEnqueueWriteBufferRect(queue, memories_[write.memory].handle, flag(placement.blocking),
                                                     r.buffer_origin.data(), r.host_origin.data(), r.region.data(),
                                                     r.buffer_row_pitch, r.buffer_slice_pitch, r.host_row_pitch,
                                                     r.host_slice_pitch, write.from, rest...);
  });
}

cl_int LocalExecutor::submit(const command::Copy& copy, const Placement& placement) {
  return place(placement, transfer(copy.size), [&](cl_command_queue queue, auto... rest) {
    return functions(queue).clEnqueueCopyBuffer(queue, memories_[copy.from].handle, memories_[copy.to].handle,
                                                copy.from_offset, copy.to_offset, copy.size, rest...);
  });
}

cl_int LocalExecutor::submit(const command::CopyRectangle& copy, const Placement& placement) {
  return place(placement, transfer(copy.region, 1), [&](cl_command_queue queue, auto... rest) {
    return functions(queue).clEnqueueCopyBufferRect(queue, memories_[copy.from].handle, memories_[copy.to].handle,
                                                    copy.from_origin.data(), copy.to_origin.data(), copy.region.data(),
                                                    copy.from_row_pitch, copy.from_slice_pitch, copy.to_row_pitch,
                                                    copy.to_slice_pitch, rest...);
  });
}

cl_int LocalExecutor::submit(const command::Fill& fill, const Placement& placement) {
  return place(placement, transfer(fill.range.size), [&](cl_command_queue queue, auto... rest) {
    return functions(queue).clEnqueueFillBuffer(queue, memories_[fill.memory].handle, fill.pattern.bytes.data(),
                                                fill.pattern.size, fill.range.offset, fill.range.size, rest...);
  });
}

cl_int LocalExecutor::submit(const command::ReadImage& read, const Placement& placement) {
  return place(placement, transfer(read.where.region), [&](cl_command_queue queue, auto... rest) {
    return functions(queue).clEnqueueReadImage(queue, memories_[read.memory].handle, flag(placement.blocking),
                                               read.where.origin.data(), read.where.region.data(), read.row_pitch,
                                               read.slice_pitch, read.to, rest...);
  });
}

cl_int LocalExecutor::submit(const command::WriteImage& write, const Placement& placement) {
  return place(placement, transfer(write.where.region), [&](cl_command_queue queue, auto... rest) {
    return functions(queue).clEnqueueWriteImage(queue, memories_[write.memory].handle, flag(placement.blocking),
                                                write.where.origin.data(), write.where.region.data(), write.row_pitch,
                                                write.slice_pitch, write.from, rest...);
  });
}

cl_int LocalExecutor::submit(const command::CopyImage& copy, const Placement& placement) {
  return place(placement, transfer(copy.region), [&](cl_command_queue queue, auto... rest) {
    return functions(queue).clEnqueueCopyImage(queue, memories_[copy.from].handle, memories_[copy.to].handle,
                                               copy.from_origin.data(), copy.to_origin.data(), copy.region.data(),
                                               rest...);
  });
}

cl_int LocalExecutor::submit(const command::CopyImageToBuffer& copy, const Placement& placement) {
  return place(placement, transfer(copy.where.region), [&](cl_command_queue queue, auto... rest) {
    return functions(queue).clEnqueueCopyImageToBuffer(queue, memories_[copy.from].handle, memories_[copy.to].handle,
                                                       copy.where.origin.data(), copy.where.region.data(), copy.offset,
                                                       rest...);
  });
}

cl_int LocalExecutor::submit(const command::CopyBufferToImage& copy, const Placement& placement) {
  return place(placement, transfer(copy.where.region), [&](cl_command_queue queue, auto... rest) {
    return functions(queue).clEnqueueCopyBufferToImage(queue, memories_[copy.from].handle, memories_[copy.to].handle,
                                                       copy.offset, copy.where.origin.data(), copy.where.region.data(),
                                                       rest...);
  });
}

cl_int LocalExecutor::submit(const command::FillImage& fill, const Placement& placement) {
  return place(placement, transfer(fill.where.region), [&](cl_command_queue queue, auto... rest) {
    return functions(queue).clEnqueueFillImage(queue, memories_[fill.memory].handle, fill.color.data(),
                                               fill.where.origin.data(), fill.where.region.data(), rest...);
  });
}

cl_int LocalExecutor::submit(const command::MapBuffer& map, const Placement& placement) {
  cl_int code = CL_SUCCESS;
  const cl_int placed = place(placement, transfer(map.range.size), [&](cl_command_queue queue, auto... rest) {
    const void* pointer =
        functions(queue).clEnqueueMapBuffer(queue, memories_[map.memory].handle, flag(placement.blocking), map.flags,
                                            map.range.offset, map.range.size, rest..., &code);
    if (code == CL_SUCCESS && pointer != map.pointer) {
      log::error("map", "the vendor maps a host buffer elsewhere ({} instead of {})", pointer, map.pointer);
      code = CL_MAP_FAILURE;
    }
    return code;
  });
  return placed;
}

cl_int LocalExecutor::submit(const command::MapImage& map, const Placement& placement) {
  cl_int code = CL_SUCCESS;
  return place(placement, transfer(map.where.region), [&](cl_command_queue queue, auto... rest) {
    std::size_t row_pitch = 0;
    std::size_t slice_pitch = 0;
    const void* pointer = functions(queue).clEnqueueMapImage(
        queue, memories_[map.memory].handle, flag(placement.blocking), map.flags, map.where.origin.data(),
        map.where.region.data(), &row_pitch, &slice_pitch, rest..., &code);
    if (code == CL_SUCCESS && pointer != map.pointer) {
      log::error("map", "the vendor maps a host image elsewhere ({} instead of {})", pointer, map.pointer);
      code = CL_MAP_FAILURE;
    }
    return code;
  });
}

cl_int LocalExecutor::submit(const command::Unmap& unmap, const Placement& placement) {
  return place(placement, transfer(0), [&](cl_command_queue queue, auto... rest) {
    return functions(queue).clEnqueueUnmapMemObject(queue, memories_[unmap.memory].handle, unmap.pointer, rest...);
  });
}

cl_int LocalExecutor::submit(const command::Migrate& migrate, const Placement& placement) {
  std::vector<cl_mem> memories;
  for (const ObjectId memory : migrate.memories) memories.push_back(memories_[memory].handle);
  return place(placement, transfer(0), [&](cl_command_queue queue, auto... rest) {
    return functions(queue).clEnqueueMigrateMemObjects(queue, static_cast<cl_uint>(memories.size()), memories.data(),
                                                       migrate.flags, rest...);
  });
}

cl_int LocalExecutor::submit(const command::NativeKernel& native, const Placement& placement) {
  std::vector<cl_mem> memories;
  for (const ObjectId memory : native.memories) memories.push_back(memories_[memory].handle);
  std::vector<std::byte> arguments{native.arguments.begin(), native.arguments.end()};
  std::vector<const void*> places;
  for (const std::size_t offset : native.places) places.push_back(arguments.data() + offset);
  return place(placement, transfer(0), [&](cl_command_queue queue, auto... rest) {
    return functions(queue).clEnqueueNativeKernel(
        queue, native.function, arguments.empty() ? nullptr : arguments.data(), arguments.size(),
        static_cast<cl_uint>(memories.size()), memories.empty() ? nullptr : memories.data(),
        places.empty() ? nullptr : places.data(), rest...);
  });
}

cl_int LocalExecutor::submit(const command::Marker&, const Placement& placement) {
  return place(placement, [&](cl_command_queue queue, auto... rest) {
    return functions(queue).clEnqueueMarkerWithWaitList(queue, rest...);
  });
}

cl_int LocalExecutor::submit(const command::Barrier&, const Placement& placement) {
  return place(placement, [&](cl_command_queue queue, auto... rest) {
    return functions(queue).clEnqueueBarrierWithWaitList(queue, rest...);
  });
}

cl_int LocalExecutor::flush(ObjectId id) {
  cl_command_queue queue = queues_[id]->handle;
  return functions(queue).clFlush(queue);
}

cl_int LocalExecutor::finish(ObjectId id) {
  if (!queues_[id]) return finish_leaving();
  VendorQueue& queue = *queues_[id];
  queue.busy.store(false, std::memory_order_relaxed);  // what is enqueued from here on makes it busy again
  if (!queue.turn) return functions(queue.handle).clFinish(queue.handle);
  const auto since = Turn::Clock::now();
  const std::uint64_t sent = queue.turn->sent();
  const cl_int code = functions(queue.handle).clFinish(queue.handle);
  queue.turn->saw_end_of(queue.handle, since, sent);
  return code;
}

cl_int LocalExecutor::wait(std::span<const ObjectId> events) {
  std::vector<cl_event> handles;
  for (const ObjectId event : events) handles.push_back(events_[event].last);
  const auto since = turns_.empty() ? Turn::Clock::time_point{} : Turn::Clock::now();
  const cl_int code = functions(handles[0]).clWaitForEvents(static_cast<cl_uint>(handles.size()), handles.data());
  for (const auto& [device, turn] : turns_) {
    for (const ObjectId event : events) turn->saw_end_of_event(event.value(), since);
  }
  return code;
}

Result<cl_int> LocalExecutor::event_status(ObjectId id) {
  cl_event event = events_[id].last;
  cl_int status = CL_QUEUED;
  const cl_int code =
      functions(event).clGetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status, nullptr);
  if (code != CL_SUCCESS) return Failure{code};
  return status;
}

Result<cl_ulong> LocalExecutor::event_profile(ObjectId id, cl_profiling_info query) {
  const VendorEvent parts = events_[id];
  const bool at_end = query == CL_PROFILING_COMMAND_END || query == CL_PROFILING_COMMAND_COMPLETE;
  cl_event event = parts.first && !at_end ? parts.first : parts.last;
  cl_ulong time = 0;
  const cl_int code = functions(event).clGetEventProfilingInfo(event, query, sizeof time, &time, nullptr);
  if (code != CL_SUCCESS) return Failure{code};
  return time;
}

cl_int LocalExecutor::when_event(ObjectId id, cl_int status, std::function<void(cl_int)> call) {
  const auto made = EventCall::make(events_[id].last, status, std::move(call));
  return made ? CL_SUCCESS : made.error();
}

}  // namespace grus
