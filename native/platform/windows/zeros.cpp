#include "platform/zeros.h"

#include <cstring>

#include "edgewise/tensor.h"
#include "platform/aligned_memory.h"
#include "platform/windows/api.h"

namespace edgewise::platform {

namespace {

// From here on blocks are pages of the system, which come as zeros when they are touched.
constexpr size_t kPagesThreshold = size_t{1} << 20;

}  // namespace

void* allocate_zeros(size_t bytes) {
  if (bytes >= kPagesThreshold) {
    return VirtualAlloc(nullptr, bytes, MEM_RESERVE | MEM_COMMIT, PAGE_READWRITE);
  }
  void* data = allocate_aligned(kBufferAlignment, bytes);
  if (data != nullptr) std::memset(data, 0, bytes);
  return data;
}

void free_zeros(void* data, size_t bytes) {
  if (bytes >= kPagesThreshold) {
    if (data != nullptr) VirtualFree(data, 0, MEM_RELEASE);
  } else {
    free_aligned(data);
  }
}

// Pages that are given back and taken again could be refused; zeros are written.
void clear_zeros(void* data, size_t bytes) { std::memset(data, 0, bytes); }

}  // namespace edgewise::platform
