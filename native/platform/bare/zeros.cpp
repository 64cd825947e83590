#include "platform/zeros.h"

#include <cstring>
#include <new>

#include "edgewise/tensor.h"

namespace edgewise::platform {

void* allocate_zeros(size_t bytes) {
  void* data = ::operator new (bytes, std::align_val_t{kBufferAlignment}, std::nothrow);
  if (data != nullptr) std::memset(data, 0, bytes);
  return data;
}

void free_zeros(void* data, size_t) {
  ::operator delete (data, std::align_val_t{kBufferAlignment});
}

void clear_zeros(void* data, size_t bytes) { std::memset(data, 0, bytes); }

}  // namespace edgewise::platform
