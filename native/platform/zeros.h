// Memory that is zero when it comes: the runtime's, whatever the system.
#pragma once

#include <cstddef>

namespace edgewise::platform {

// `bytes`, a multiple of kBufferAlignment, aligned to it; null if there is no memory.
void* allocate_zeros(size_t bytes);
// `bytes` as it was passed to allocate_zeros.
void free_zeros(void* data, size_t bytes);
// Makes the block all zeros again.
void clear_zeros(void* data, size_t bytes);

}  // namespace edgewise::platform
