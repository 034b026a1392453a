// The program's callbacks run on one thread of Grus's own, outside the gate, in the order they were posted. Vendors'
// callbacks only post here: a callback that blocks a vendor's thread would block its clFinish.
#pragma once

#include <functional>

namespace grus::callbacks {

// May be called from any thread; never blocks for long and never throws.
void post(std::function<void()> call) noexcept;
// In a forked child, where the thread is gone: forgets what the parent had posted.
void forget_all() noexcept;

}  // namespace grus::callbacks
