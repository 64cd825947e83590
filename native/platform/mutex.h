// A lock, and what lets one file of a platform know its kind.
#pragma once

#include <mutex>

namespace edgewise::platform {

#ifdef EDGEWISE_BARE_METAL
// Without an operating system there is one thread, and often no std::mutex.
struct Mutex {
  void lock() {}
  void unlock() {}
};
#else
using Mutex = std::mutex;
#endif

}  // namespace edgewise::platform
