#include "platform/aligned_memory.h"

#include <malloc.h>

namespace edgewise::platform {

void* allocate_aligned(size_t alignment, size_t bytes) { return _aligned_malloc(bytes, alignment); }

void free_aligned(void* data) { _aligned_free(data); }

void prefer_huge_pages(void*, size_t) {}  // they need a privilege that programs do not have

}  // namespace edgewise::platform
