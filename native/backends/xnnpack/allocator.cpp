#include "backends/xnnpack/allocator.h"

#include <algorithm>
#include <cstdlib>

#include "edgewise/tensor.h"
#include "platform/aligned_memory.h"

namespace edgewise::xnnpack {
namespace {

void* allocate(void* /*context*/, size_t size) { return std::malloc(size); }

void* reallocate(void* /*context*/, void* memory, size_t size) {
  return std::realloc(memory, size);
}

void deallocate(void* /*context*/, void* memory) { std::free(memory); }

// From kHugePage on in huge pages, where the system has them: activations and weights of that size
// are walked from end to end, and small pages cost a few per cent of the time.
void* aligned_allocate(void* /*context*/, size_t alignment, size_t size) {
  const bool is_large = size >= kHugePage;
  void* memory =
      platform::allocate_aligned(is_large ? std::max(alignment, kHugePage) : alignment, size);
  if (is_large && memory != nullptr) platform::prefer_huge_pages(memory, size);
  return memory;
}

void aligned_deallocate(void* /*context*/, void* memory) { platform::free_aligned(memory); }

}  // namespace

std::shared_ptr<std::byte> allocate_shared(size_t size) {
  auto* memory = static_cast<std::byte*>(aligned_allocate(nullptr, kBufferAlignment, size));
  if (memory == nullptr) return nullptr;
  return {memory, [](std::byte* bytes) { platform::free_aligned(bytes); }};
}

const xnn_allocator& allocator() {
  static const xnn_allocator instance = {nullptr,    allocate,         reallocate,
                                         deallocate, aligned_allocate, aligned_deallocate};
  return instance;
}

}  // namespace edgewise::xnnpack
