// Grus's own threads: named, and with all signals masked, so that the program's handlers run on the program's threads.
#pragma once

#include <pthread.h>

#include <csignal>
#include <thread>
#include <utility>

namespace grus {

template <typename Body>
std::thread start_thread(const char* name, Body body) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  struct Restore {  // whether or not the thread could be started
    const sigset_t& mask;
    ~Restore() { pthread_sigmask(SIG_SETMASK, &mask, nullptr); }
  } restore{before};
  std::thread thread{std::move(body)};
  pthread_setname_np(thread.native_handle(), name);
  return thread;
}

}  // namespace grus
