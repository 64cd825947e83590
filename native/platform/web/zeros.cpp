#include "platform/zeros.h"

#include <cstdlib>
#include <cstring>

#include "edgewise/tensor.h"

namespace edgewise::platform {

void* allocate_zeros(size_t bytes) {
  void* data = std::aligned_alloc(kBufferAlignment, bytes);
  if (data != nullptr) std::memset(data, 0, bytes);
  return data;
}

void free_zeros(void* data, size_t /*bytes*/) { std::free(data); }

// The pages of a WebAssembly memory cannot be given back: madvise() does nothing, and says it did.
void clear_zeros(void* data, size_t bytes) { std::memset(data, 0, bytes); }

}  // namespace edgewise::platform
