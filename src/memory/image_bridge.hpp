// How an image goes from one device to another: the source's device copies it to a buffer, whose pages are compared and
// sent as any other's, and the destination's device copies that to the image there.
#pragma once

#include <memory>

#include "command/executor.hpp"

namespace grus::memory {

class ImageBridge {
 public:
  // Null if there is no room for the buffer at either side.
  static std::unique_ptr<ImageBridge> make(Executor& from, Executor& to, const Memory& image);
  ~ImageBridge();
  ImageBridge(const ImageBridge&) = delete;
  ImageBridge& operator=(const ImageBridge&) = delete;

  ObjectId buffer() const { return buffer_->id(); }  // at both sides
  std::size_t size() const { return buffer_->size; }

  // Both throw std::runtime_error. The first waits, the second only begins.
  void fill(ObjectId queue);
  void empty(ObjectId queue);

 private:
  ImageBridge(Executor& from, Executor& to, const Memory& image);
  bool make_at(Executor& executor);

  Executor& from_;
  Executor& to_;
  const ObjectId image_;
  const command::ImageRegion whole_;
  Ref<Memory> buffer_;
  std::vector<Executor*> made_at_;
};

}  // namespace grus::memory
