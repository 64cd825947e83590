#include "platform/process.h"

#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace edgewise::platform {

namespace {

std::atomic<unsigned> forks = 0;

}  // namespace

size_t physical_memory() {
  const long pages = sysconf(_SC_PHYS_PAGES);
  const long page = sysconf(_SC_PAGESIZE);
  if (pages <= 0 || page <= 0) return 0;
  // A 32-bit program may run on a machine with more than it can address.
  const auto bytes = static_cast<unsigned long long>(pages) * static_cast<unsigned long long>(page);
  return static_cast<size_t>(std::min<unsigned long long>(bytes, SIZE_MAX));
}

size_t peak_memory() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
#ifdef __APPLE__
  return static_cast<size_t>(usage.ru_maxrss);
#else
  return static_cast<size_t>(usage.ru_maxrss) * 1024;
#endif
}

unsigned fork_count() {
  static const int registered =
      pthread_atfork(nullptr, nullptr, [] { forks.fetch_add(1, std::memory_order_relaxed); });
  (void)registered;
  return forks.load(std::memory_order_relaxed);
}

}  // namespace edgewise::platform
