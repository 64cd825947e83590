#include "platform/zeros.h"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>

#include "edgewise/tensor.h"

namespace edgewise::platform {

namespace {

// From here on blocks are mapped: their pages cost nothing until they are touched, however much a
// file asks for.
constexpr size_t kMapThreshold = size_t{1} << 20;

void* map_zeros(void* at, size_t bytes, int flags) {
  void* data = mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANON | flags, -1, 0);
  return data == MAP_FAILED ? nullptr : data;
}

}  // namespace

void* allocate_zeros(size_t bytes) {
  if (bytes >= kMapThreshold) return map_zeros(nullptr, bytes, 0);
  void* data = std::aligned_alloc(kBufferAlignment, bytes);
  if (data != nullptr) std::memset(data, 0, bytes);
  return data;
}

void free_zeros(void* data, size_t bytes) {
  if (bytes < kMapThreshold) {
    std::free(data);
  } else if (data != nullptr) {
    munmap(data, bytes);
  }
}

void clear_zeros(void* data, size_t bytes) {
  // Here madvise() leaves what is in the pages; new ones over them are zeros.
  if (bytes >= kMapThreshold && map_zeros(data, bytes, MAP_FIXED) != nullptr) return;
  std::memset(data, 0, bytes);
}

}  // namespace edgewise::platform
