#include "move/shelf.hpp"

#include <sys/mman.h>

#include <atomic>
#include <cstring>
#include <thread>

#include "base/thread.hpp"
#include "command/callbacks.hpp"
#include "objects/image_format.hpp"

namespace grus::move {
namespace {

constexpr std::size_t kPopulateFrom = std::size_t{2} << 20;
constexpr std::size_t kPopulaters = 4;
constexpr std::size_t kFillPart = std::size_t{1} << 20;  // a multiple of every pattern's size

// Both sides in rows; the shelf's is packed.
struct Rows {
  Triple extent{};  // bytes of a row, rows, slices
  std::size_t row_pitch = 0;
  std::size_t slice_pitch = 0;
};

template <typename Copy>
void each_row(const Rows& rows, Copy copy) {
  std::size_t packed = 0;
  for (std::size_t slice = 0; slice < rows.extent[2]; ++slice) {
    for (std::size_t row = 0; row < rows.extent[1]; ++row) {
      copy(packed, slice * rows.slice_pitch + row * rows.row_pitch, rows.extent[0]);
      packed += rows.extent[0];
    }
  }
}

Rows rows_of(const cl_image_desc& desc, std::size_t element, std::size_t row_pitch, std::size_t slice_pitch) {
  ImageFacts facts;
  facts.desc = desc;
  Triple extent = facts.extent();
  extent[0] *= element;
  const HostLayout layout = layout_of(desc, element, row_pitch, slice_pitch);
  const bool rows_are_slices = desc.image_type == CL_MEM_OBJECT_IMAGE1D_ARRAY;
  return {extent, rows_are_slices ? layout.slice : layout.row, layout.slice};
}

// With its pages in place already, so that copying doesn't wait for them: four threads make them faster than one.
std::shared_ptr<HostMemory> room_for(std::size_t size) {
  auto memory = memory_in_pages(size);
  if (size < kPopulateFrom) return memory;
  madvise(memory->data(), size, MADV_HUGEPAGE);
  const std::size_t part = size / kPopulaters / kPopulateFrom * kPopulateFrom;
  std::vector<std::thread> threads;
  for (std::size_t next = 0; part != 0 && next < kPopulaters; ++next) {
    const std::size_t end = next + 1 == kPopulaters ? size : (next + 1) * part;
    threads.push_back(start_thread("grus-pages", [start = memory->data() + next * part, bytes = end - next * part] {
      madvise(start, bytes, MADV_POPULATE_WRITE);  // an old system can't: then they come as they are needed
    }));
  }
  for (auto& thread : threads) thread.join();
  return memory;
}

}  // namespace

std::map<std::uint64_t, Shelf::Shelved> Shelf::contents() const {
  const std::lock_guard lock{mutex_};
  return memories_;
}

Shelf::Shelved* Shelf::find(ObjectId id) {
  const std::lock_guard lock{mutex_};
  const auto found = memories_.find(id.value());
  return found == memories_.end() ? nullptr : &found->second;
}

Shelf::Shelved Shelf::make(std::size_t size) const {
  Shelved shelved;
  shelved.size = size;
  if (file_) {
    shelved.place = file_->reserve(size);
  } else {
    shelved.memory = room_for(size);
  }
  return shelved;
}

void Shelf::put(const Shelved& to, std::size_t offset, const void* from, std::size_t size) const {
  if (file_) return file_->write(to.place + offset, static_cast<const std::byte*>(from), size);
  std::memcpy(to.memory->data() + offset, from, size);
}

void Shelf::get(const Shelved& from, std::size_t offset, void* to, std::size_t size) const {
  if (file_) return file_->read(from.place + offset, static_cast<std::byte*>(to), size);
  std::memcpy(to, from.memory->data() + offset, size);
}

std::shared_ptr<HostMemory> Shelf::contents_of(ObjectId memory) {
  const Shelved* const shelved = find(memory);
  return shelved && shelved->element_size == 0 ? shelved->memory : nullptr;
}

cl_int Shelf::create_buffer(const NewBuffer& buffer) {
  if (buffer.is_region) return CL_SUCCESS;
  Shelved shelved = make(buffer.size);
  if (const void* const contents = buffer.host ? buffer.host : buffer.initial) put(shelved, 0, contents, buffer.size);
  const std::lock_guard lock{mutex_};
  memories_[buffer.id.value()] = std::move(shelved);
  return CL_SUCCESS;
}

Result<ImageLayout> Shelf::create_image(const NewImage& image) {
  const std::size_t element = element_size(image.format);
  const Rows rows = rows_of(image.desc, element, image.desc.image_row_pitch, image.desc.image_slice_pitch);
  const bool has_slices = image.desc.image_type == CL_MEM_OBJECT_IMAGE3D ||
                          image.desc.image_type == CL_MEM_OBJECT_IMAGE1D_ARRAY ||
                          image.desc.image_type == CL_MEM_OBJECT_IMAGE2D_ARRAY;
  const HostLayout tight = layout_of(image.desc, element, 0, 0);
  const std::size_t size = tight.size;
  const ImageLayout layout{element, tight.row, has_slices ? tight.slice : 0, size};
  if (image.from) return layout;
  Shelved shelved = make(size);
  shelved.desc = image.desc;
  shelved.element_size = element;
  if (const void* const contents = image.host ? image.host : image.initial) {
    each_row(rows, [&](std::size_t packed, std::size_t given, std::size_t bytes) {
      put(shelved, packed, static_cast<const std::byte*>(contents) + given, bytes);
    });
  }
  const std::lock_guard lock{mutex_};
  memories_[image.id.value()] = std::move(shelved);
  return layout;
}

void Shelf::when_memory_is_gone(ObjectId memory, std::function<void()> call) {
  const std::lock_guard lock{mutex_};
  watched_[memory.value()].push_back(std::move(call));
}

void Shelf::free(ObjectType type, ObjectId id) noexcept {
  if (type != ObjectType::memory) return;
  const std::lock_guard lock{mutex_};
  if (auto freed = memories_.extract(id.value()); !freed.empty()) {
    if (file_) file_->release(freed.mapped().place, freed.mapped().size);
    if (is_left_) unneeded_.push_back(std::move(freed.mapped().memory));
  }
  const auto watched = watched_.extract(id.value());
  if (watched.empty()) return;
  for (auto& call : watched.mapped()) callbacks::post(std::move(call));
}

// It waits until the session is somewhere again; then it is built there.
BuildOutcome Shelf::build(const BuildOrder&) {
  std::unique_lock lock{mutex_};
  changed_.wait(lock, [this] { return is_left_; });
  BuildOutcome outcome;
  outcome.code = kNowhere;
  return outcome;
}

void Shelf::session_left() {
  const std::lock_guard lock{mutex_};
  is_left_ = true;
  changed_.notify_all();
}

// To give much memory back takes long, too.
void Shelf::leave() {
  std::atomic<std::size_t> next = 0;
  const auto free_some = [&] {
    for (std::size_t mine = 0; (mine = next++) < unneeded_.size();) unneeded_[mine].reset();
  };
  std::vector<std::thread> threads;
  for (std::size_t count = 1; count < std::min(kPopulaters, unneeded_.size()); ++count)
    threads.push_back(start_thread("grus-pages", free_some));
  free_some();
  for (auto& thread : threads) thread.join();
  unneeded_.clear();
  file_.reset();
}

cl_int Shelf::submit(const command::Read& read, const Placement&) {
  const Shelved* const from = find(read.memory);
  if (!from) return CL_INVALID_MEM_OBJECT;
  get(*from, read.range.offset, read.to, read.range.size);
  return CL_SUCCESS;
}

cl_int Shelf::submit(const command::Write& write, const Placement&) {
  Shelved* const to = find(write.memory);
  if (!to) return CL_INVALID_MEM_OBJECT;
  put(*to, write.range.offset, write.from, write.range.size);
  return CL_SUCCESS;
}

cl_int Shelf::submit(const command::Fill& fill, const Placement&) {
  Shelved* const to = find(fill.memory);
  if (!to) return CL_INVALID_MEM_OBJECT;
  std::vector<std::byte> part(std::min(kFillPart, fill.range.size));
  for (std::size_t done = 0; done < part.size(); done += fill.pattern.size)
    std::memcpy(part.data() + done, fill.pattern.bytes.data(), fill.pattern.size);
  for (std::size_t done = 0; done < fill.range.size; done += part.size())
    put(*to, fill.range.offset + done, part.data(), std::min(part.size(), fill.range.size - done));
  return CL_SUCCESS;
}

// Only ever whole, and packed: that is how moves copy images.
cl_int Shelf::submit(const command::ReadImage& read, const Placement&) {
  const Shelved* const from = find(read.memory);
  if (!from) return CL_INVALID_MEM_OBJECT;
  get(*from, 0, read.to, from->size);
  return CL_SUCCESS;
}

cl_int Shelf::submit(const command::WriteImage& write, const Placement&) {
  Shelved* const to = find(write.memory);
  if (!to) return CL_INVALID_MEM_OBJECT;
  put(*to, 0, write.from, to->size);
  return CL_SUCCESS;
}

}  // namespace grus::move
