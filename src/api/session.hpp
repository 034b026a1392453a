// The session: all the objects of this process, from its first call to its end or fork.
#pragma once

namespace grus::api {

// Once, by the first call that needs drivers.
void start_session();
inline void (*g_on_first_queue)() = nullptr;  // called once: from then on there can be something to move
// True in the child of a fork, if the parent had started drivers: their threads are gone, and they can't be started
// again. Says so, once.
bool drivers_are_lost_by_fork();

}  // namespace grus::api
