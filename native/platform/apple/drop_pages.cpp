#include "platform/posix/drop_pages.h"

#include <sys/mman.h>

namespace edgewise::platform {

// There madvise() leaves what is in the pages; new ones over them are zeros.
bool drop_pages(void* data, size_t bytes) {
  constexpr int kOver = MAP_PRIVATE | MAP_ANON | MAP_FIXED;
  return mmap(data, bytes, PROT_READ | PROT_WRITE, kOver, /*fd=*/-1, 0) != MAP_FAILED;
}

}  // namespace edgewise::platform
