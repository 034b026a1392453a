// Buffers, sub-buffers and images.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <vector>

#include "objects/dirty.hpp"
#include "objects/event.hpp"

namespace grus {

// Host memory that Grus owns. It is shared: the vendor may still use it when the object that it was made for is gone.
class HostMemory {
 public:
  virtual ~HostMemory() = default;
  HostMemory(const HostMemory&) = delete;
  HostMemory& operator=(const HostMemory&) = delete;

  std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }

 protected:
  HostMemory(std::byte* data, std::size_t size) : data_{data}, size_{size} {}

 private:
  std::byte* data_;
  std::size_t size_;
};

// Pages of its own are what a device with memory of its own reads and writes best. For a CPU the heap is better: blocks
// are used again while they are in the cache, and don't all start at the same place of a page, where they would get in
// each other's way. Both throw std::bad_alloc.
std::shared_ptr<HostMemory> memory_from_heap(std::size_t size);
std::shared_ptr<HostMemory> memory_in_pages(std::size_t size);

// What kernels may do: of a program's flags all that drivers are told.
inline constexpr cl_mem_flags kDeviceAccess = CL_MEM_READ_WRITE | CL_MEM_WRITE_ONLY | CL_MEM_READ_ONLY;

using Triple = std::array<std::size_t, 3>;

struct ImageFacts {
  cl_image_format format{};
  cl_image_desc desc{};  // as given, but for its handle: that is Memory::parent
  std::size_t element_size = 0;
  std::size_t row_pitch = 0;
  std::size_t slice_pitch = 0;

  Triple extent() const;  // in the order of an origin: unused dimensions are 1
};

class Memory;

// Host memory registered with the vendor, for mappings of objects that live on the device. It can be used again when
// the command that used it last is done: on the in-order queue of that command by order, elsewhere when its event says
// so.
struct Region {
  Ref<Memory> memory;
  ObjectId last_queue;  // in order
  Ref<Event> last_use;  // on any other
};

// What a mapped pointer stands for, until its unmap. Then the record is used again, and its region with it.
struct Mapping {
  std::byte* pointer = nullptr;  // while the program has it mapped
  cl_map_flags flags = 0;
  Range range;      // buffers
  Triple origin{};  // images
  Triple region{};  // images
  std::size_t row_pitch = 0;
  std::size_t slice_pitch = 0;
  Region staging;  // where the device has memory of its own: the copy that the program sees
  std::atomic<bool> is_free{false};
};

class Memory : public Object {
 public:
  Memory(Context& context_, cl_mem_object_type type_) : context{&context_}, type{type_} {}
  ~Memory();

  bool is_image() const { return image != nullptr; }
  // The buffer that the bytes belong to: sub-buffers and images made from buffers dirty their parent.
  Memory& root() { return parent ? parent->root() : *this; }
  // Something below the seam may write to it: what moves must look at it again.
  void touch() {
    Memory* whole = this;
    while (whole->parent) whole = whole->parent.get();
    whole->dirty.add_all();
  }
  // The same if it is known where, of a buffer.
  void touch(Range range) {
    Memory* whole = this;
    for (; whole->parent; whole = whole->parent.get()) range.offset += whole->origin;
    whole->dirty.add(range);
  }

  // Gives it memory that Grus owns to live in.
  void take_host_memory(std::shared_ptr<HostMemory> memory) {
    host_memory = std::move(memory);
    host = host_memory->data();
  }
  // A record for a new mapping: a free one that fits, or one more.
  Mapping& take_mapping(auto fits) {
    const std::lock_guard guard{lock};
    for (const auto& mapping : mappings) {
      if (!mapping->is_free.load(std::memory_order_acquire) || !fits(*mapping)) continue;
      mapping->is_free.store(false, std::memory_order_relaxed);
      return *mapping;
    }
    return *mappings.emplace_back(std::make_unique<Mapping>());
  }
  // The record of a mapped pointer, which is not mapped any more; null if there is none.
  Mapping* unmap(const void* pointer);
  void set_mapped(Mapping& mapping, std::byte* pointer);
  void take_back(Mapping& mapping);  // one that came to nothing

  const Ref<Context> context;
  const cl_mem_object_type type;
  bool created = false;  // below the seam
  cl_mem_flags flags = 0;
  std::size_t size = 0;
  void* host_ptr = nullptr;  // as given with CL_MEM_USE_HOST_PTR
  std::vector<cl_mem_properties> properties;
  bool is_region = false;  // Grus's own, for mappings
  Ref<Memory> parent;
  std::size_t origin = 0;  // within the parent
  std::unique_ptr<ImageFacts> image;

  // Where the object's bytes are mapped: the program's own memory (USE_HOST_PTR), memory that Grus owns, or null if a
  // mapping is a copy.
  std::byte* host = nullptr;
  std::shared_ptr<HostMemory> host_memory;

  Dirty dirty;
  std::atomic<cl_uint> map_count{0};
  SpinLock lock;  // guards the list of mappings and their pointers, and the callbacks
  std::vector<std::function<void()>> gone_callbacks;  // of the program's
  std::vector<std::unique_ptr<Mapping>> mappings;
};

}  // namespace grus
