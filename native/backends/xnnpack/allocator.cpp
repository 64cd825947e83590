#include "backends/xnnpack/allocator.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>

#include "edgewise/tensor.h"

namespace edgewise::xnnpack {
namespace {

void* allocate(void* /*context*/, size_t size) { return std::malloc(size); }

void* reallocate(void* /*context*/, void* memory, size_t size) {
  return std::realloc(memory, size);
}

void deallocate(void* /*context*/, void* memory) { std::free(memory); }

void* aligned_allocate(void* /*context*/, size_t alignment, size_t size) {
  return allocate_aligned(alignment, size);
}

}  // namespace

void* allocate_aligned(size_t alignment, size_t size) {
  const bool is_large = size >= kHugePage;
  void* memory = nullptr;
  if (posix_memalign(&memory, is_large ? std::max(alignment, kHugePage) : alignment, size) != 0) {
    return nullptr;
  }
#ifdef MADV_HUGEPAGE
  if (is_large) madvise(memory, size, MADV_HUGEPAGE);
#endif
  return memory;
}

std::shared_ptr<std::byte> allocate_shared(size_t size) {
  auto* memory = static_cast<std::byte*>(allocate_aligned(kBufferAlignment, size));
  if (memory == nullptr) return nullptr;
  return {memory, [](std::byte* bytes) { std::free(bytes); }};
}

const xnn_allocator& allocator() {
  static const xnn_allocator instance = {nullptr,    allocate,         reallocate,
                                         deallocate, aligned_allocate, deallocate};
  return instance;
}

}  // namespace edgewise::xnnpack
