#include "memory/image_bridge.hpp"

#include "command/gate.hpp"
#include "memory/copy.hpp"

namespace grus::memory {

ImageBridge::ImageBridge(Executor& from, Executor& to, const Memory& image)
    : from_{from}, to_{to}, image_{image.id()}, whole_{{0, 0, 0}, image.image->extent()} {
  const Gate::Entry entry{kInternalCall};
  buffer_ = Ref<Memory>::adopt(slab<Memory>().create(*image.context, CL_MEM_OBJECT_BUFFER));
  buffer_->size = packed_size(*image.image);
}

ImageBridge::~ImageBridge() {
  for (Executor* const executor : made_at_) executor->free(ObjectType::memory, buffer());
  const Gate::Entry entry{kInternalCall};
  buffer_ = {};
}

std::unique_ptr<ImageBridge> ImageBridge::make(Executor& from, Executor& to, const Memory& image) {
  std::unique_ptr<ImageBridge> bridge{new ImageBridge{from, to, image}};
  return bridge->make_at(from) && bridge->make_at(to) ? std::move(bridge) : nullptr;
}

bool ImageBridge::make_at(Executor& executor) {
  NewBuffer order;
  order.id = buffer();
  order.context = buffer_->context->id();
  order.flags = CL_MEM_READ_WRITE;
  order.size = size();
  if (executor.create_buffer(order) != CL_SUCCESS) return false;
  made_at_.push_back(&executor);
  return true;
}

void ImageBridge::fill(ObjectId queue) {
  const command::CopyImageToBuffer copy{{image_, buffer()}, whole_, 0};
  check(from_.submit(copy, {.queue = queue, .waits = {}, .event = {}}), "copying an image on the device");
  check(from_.finish(queue), "copying an image on the device");
}

void ImageBridge::empty(ObjectId queue) {
  const command::CopyBufferToImage copy{{buffer(), image_}, 0, whole_};
  check(to_.submit(copy, {.queue = queue, .waits = {}, .event = {}}), "copying an image on the device");
}

}  // namespace grus::memory
