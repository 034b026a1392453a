// The commands: what crosses the seam when the program enqueues something. Each names the objects it uses and the
// memory it may write, and where if that is known; hold-back keeps the first alive, and the dirty sieve needs the
// second. A command that points at data of the caller's has keep(), which copies that data when the command outlives
// the call.
#pragma once

#include <array>
#include <cstring>
#include <span>
#include <vector>

#include "objects/event.hpp"
#include "objects/kernel.hpp"

namespace grus::command {

struct Launch {
  ObjectId kernel;
  std::span<const Argument> arguments;
  std::uint64_t stamp = 0;  // of all arguments together: changes when one of theirs does
  cl_uint dimensions = 0;
  const std::size_t* offset = nullptr;
  const std::size_t* global = nullptr;
  const std::size_t* local = nullptr;

  struct Storage {
    std::vector<Argument> arguments;
    std::array<Triple, 3> sizes;
  };
  void keep(Storage& storage) {
    storage.arguments.assign(arguments.begin(), arguments.end());
    arguments = storage.arguments;
    int next = 0;
    for (const std::size_t** sizes : {&offset, &global, &local}) {
      auto& own = storage.sizes[next++];
      if (!*sizes) continue;
      std::copy_n(*sizes, dimensions, own.begin());
      *sizes = own.data();
    }
  }
  void each_memory(auto visit) const {
    for (const Argument& argument : arguments) {
      if (argument.holds == Argument::Holds::memory && argument.object) visit(argument.object);
    }
  }
  void each_written(auto) const {}  // noted when the arguments are checked, which looks at each of them anyway
};

struct NativeKernel {
  void(CL_CALLBACK* function)(void*) = nullptr;
  std::span<const std::byte> arguments;
  std::span<const ObjectId> memories;
  std::span<const std::size_t> places;  // of the memory objects' pointers within the arguments

  struct Storage {
    std::vector<std::byte> arguments;
    std::vector<ObjectId> memories;
    std::vector<std::size_t> places;
  };
  void keep(Storage& storage) {
    storage = {
        {arguments.begin(), arguments.end()}, {memories.begin(), memories.end()}, {places.begin(), places.end()}};
    arguments = storage.arguments;
    memories = storage.memories;
    places = storage.places;
  }
  void each_memory(auto visit) const {
    for (const ObjectId memory : memories) visit(memory);
  }
  void each_written(auto visit) const { each_memory(visit); }
};

struct NoStorage {};

// The shapes that most commands have: one memory object that is read or written, or two of which the second is written.
struct ReadsOne {
  using Storage = NoStorage;
  ObjectId memory;
  void keep(Storage&) {}
  void each_memory(auto visit) const { visit(memory); }
  void each_written(auto) const {}
};
struct WritesOne {
  using Storage = NoStorage;
  ObjectId memory;
  void keep(Storage&) {}
  void each_memory(auto visit) const { visit(memory); }
  void each_written(auto visit) const { visit(memory); }
};
struct CopiesOne {
  using Storage = NoStorage;
  ObjectId from;
  ObjectId to;
  void keep(Storage&) {}
  void each_memory(auto visit) const {
    visit(from);
    visit(to);
  }
  void each_written(auto visit) const { visit(to); }
};

struct Read : ReadsOne {
  Range range;
  void* to = nullptr;
  bool is_for_mapping = false;  // into registered memory
};
struct Write : WritesOne {
  Range range;
  const void* from = nullptr;
  void each_written(auto visit) const { visit(memory, range); }
};

struct Rectangle {
  Triple buffer_origin{};
  Triple host_origin{};
  Triple region{};
  std::size_t buffer_row_pitch = 0;
  std::size_t buffer_slice_pitch = 0;
  std::size_t host_row_pitch = 0;
  std::size_t host_slice_pitch = 0;
};
struct ReadRectangle : ReadsOne {
  Rectangle rectangle;
  void* to = nullptr;
};
struct WriteRectangle : WritesOne {
  Rectangle rectangle;
  const void* from = nullptr;
};

struct Copy : CopiesOne {
  std::size_t from_offset = 0;
  std::size_t to_offset = 0;
  std::size_t size = 0;
  void each_written(auto visit) const { visit(to, Range{to_offset, size}); }
};
struct CopyRectangle : CopiesOne {
  Triple from_origin{};
  Triple to_origin{};
  Triple region{};
  std::size_t from_row_pitch = 0;
  std::size_t from_slice_pitch = 0;
  std::size_t to_row_pitch = 0;
  std::size_t to_slice_pitch = 0;
};

struct Pattern {
  std::array<std::byte, 128> bytes;
  std::size_t size = 0;
};
struct Fill : WritesOne {
  Range range;
  Pattern pattern;
  void each_written(auto visit) const { visit(memory, range); }
};

struct ImageRegion {
  Triple origin{};
  Triple region{};
};
struct ReadImage : ReadsOne {
  ImageRegion where;
  std::size_t row_pitch = 0;
  std::size_t slice_pitch = 0;
  void* to = nullptr;
};
struct WriteImage : WritesOne {
  ImageRegion where;
  std::size_t row_pitch = 0;
  std::size_t slice_pitch = 0;
  const void* from = nullptr;
};
struct CopyImage : CopiesOne {
  Triple from_origin{};
  Triple to_origin{};
  Triple region{};
};
struct CopyImageToBuffer : CopiesOne {
  ImageRegion where;
  std::size_t offset = 0;
};
struct CopyBufferToImage : CopiesOne {
  std::size_t offset = 0;
  ImageRegion where;
};
struct FillImage : WritesOne {
  std::array<std::byte, 16> color;
  ImageRegion where;
};

// Mapping an object whose bytes live in host memory: only the vendor's caches have to be told. The pointer that the
// program gets is known above the seam. (Where the device has memory of its own, mapping is a Read or a Write.)
struct MapBuffer : ReadsOne {
  cl_map_flags flags = 0;
  Range range;
  void* pointer = nullptr;
};
struct MapImage : ReadsOne {
  cl_map_flags flags = 0;
  ImageRegion where;
  void* pointer = nullptr;
  std::size_t row_pitch = 0;  // of the memory behind the pointer
  std::size_t slice_pitch = 0;
};
struct Unmap : WritesOne {
  void* pointer = nullptr;
  // What was mapped, for a command that is held back while the session moves.
  cl_map_flags flags = 0;
  Range range;                 // buffers
  command::ImageRegion where;  // images
  std::size_t row_pitch = 0;
  std::size_t slice_pitch = 0;
  void each_written(auto visit) const {
    if (range.size != 0) return visit(memory, range);
    visit(memory);
  }
};

struct Migrate {
  std::span<const ObjectId> memories;
  cl_mem_migration_flags flags = 0;

  using Storage = std::vector<ObjectId>;
  void keep(Storage& storage) {
    storage.assign(memories.begin(), memories.end());
    memories = storage;
  }
  void each_memory(auto visit) const {
    for (const ObjectId memory : memories) visit(memory);
  }
  void each_written(auto) const {}
};

struct NoMemory {
  using Storage = NoStorage;
  void keep(Storage&) {}
  void each_memory(auto) const {}
  void each_written(auto) const {}
};
// With an empty wait list both wait for everything enqueued before; a barrier is also waited for by all that follows.
struct Marker : NoMemory {};
struct Barrier : NoMemory {};

}  // namespace grus::command
