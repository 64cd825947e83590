// Memory from the heap, aligned.
#pragma once

#include <cstddef>

namespace edgewise::platform {

// alignment: a power of two. Null if there is no memory.
void* allocate_aligned(size_t alignment, size_t bytes);
void free_aligned(void* data);
// Whole huge pages among these bytes may be made of one page each, where the system has them.
void prefer_huge_pages(void* data, size_t bytes);

}  // namespace edgewise::platform
