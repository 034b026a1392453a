#include "memory/registered.hpp"

#include "command/gate.hpp"

namespace grus::memory {

RegisteredMemory::RegisteredMemory(Context& context, std::shared_ptr<HostMemory> memory,
                                   std::initializer_list<Executor*> executors)
    : memory_{std::move(memory)} {
  {
    const Gate::Entry entry{kInternalCall};
    region_ = Ref<Memory>::adopt(slab<Memory>().create(context, CL_MEM_OBJECT_BUFFER));
    region_->is_region = true;
  }
  for (Executor* const executor : executors) {
    NewBuffer order;
    order.id = region_->id();
    order.context = context.id();
    order.size = memory_->size();
    order.host = memory_->data();
    order.host_memory = memory_;
    order.is_region = true;
    if (executor->create_buffer(order) == CL_SUCCESS) known_to_.push_back(executor);
  }
}

RegisteredMemory::~RegisteredMemory() {
  for (Executor* const executor : known_to_) executor->free(ObjectType::memory, region_->id());
  const Gate::Entry entry{kInternalCall};
  region_ = {};
}

}  // namespace grus::memory
