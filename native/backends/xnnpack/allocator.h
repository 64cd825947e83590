// Memory for XNNPACK's tensors and for packed weights.
#pragma once

#include <cstddef>
#include <memory>

#include "xnnpack.h"

namespace edgewise::xnnpack {

inline constexpr size_t kHugePage = size_t{1} << 21;

// At least `size` bytes, to be released with std::free; null if there are none. From
// kHugePage on in huge pages, where the system has them: activations and weights of that size
// are walked from end to end, and small pages cost a few per cent of the time.
void* allocate_aligned(size_t alignment, size_t size);

// Likewise, aligned as tensors are; null if there are none.
std::shared_ptr<std::byte> allocate_shared(size_t size);

// XNNPACK's general allocations from the heap, aligned ones from allocate_aligned.
const xnn_allocator& allocator();

}  // namespace edgewise::xnnpack
