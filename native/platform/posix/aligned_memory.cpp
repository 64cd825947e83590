#include "platform/aligned_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>

namespace edgewise::platform {

void* allocate_aligned(size_t alignment, size_t bytes) {
  void* data = nullptr;
  const size_t allowed = std::max(alignment, sizeof(void*));
  return posix_memalign(&data, allowed, bytes) == 0 ? data : nullptr;
}

void free_aligned(void* data) { std::free(data); }

void prefer_huge_pages(void* data, size_t bytes) {
#ifdef MADV_HUGEPAGE
  madvise(data, bytes, MADV_HUGEPAGE);
#else
  (void)data;
  (void)bytes;
#endif
}

}  // namespace edgewise::platform
