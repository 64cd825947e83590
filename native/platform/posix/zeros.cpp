#include "platform/zeros.h"

#include <sys/mman.h>

#include <cstring>

#include "edgewise/tensor.h"
#include "platform/aligned_memory.h"
#include "platform/posix/drop_pages.h"

namespace edgewise::platform {

namespace {

// From here on blocks are mapped: their pages cost nothing until they are touched, however much a
// file asks for.
constexpr size_t kMapThreshold = size_t{1} << 20;

}  // namespace

void* allocate_zeros(size_t bytes) {
  if (bytes >= kMapThreshold) {
    void* data =
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, /*fd=*/-1, 0);
    return data == MAP_FAILED ? nullptr : data;
  }
  void* data = allocate_aligned(kBufferAlignment, bytes);
  if (data != nullptr) std::memset(data, 0, bytes);
  return data;
}

void free_zeros(void* data, size_t bytes) {
  if (bytes < kMapThreshold) {
    free_aligned(data);
  } else if (data != nullptr) {
    munmap(data, bytes);
  }
}

void clear_zeros(void* data, size_t bytes) {
  // Touching them all could be more than the machine has.
  if (bytes >= kMapThreshold && drop_pages(data, bytes)) return;
  std::memset(data, 0, bytes);
}

}  // namespace edgewise::platform
