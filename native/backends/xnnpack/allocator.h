// Memory for XNNPACK's tensors and for packed weights.
#pragma once

#include <cstddef>
#include <memory>

#include "xnnpack.h"

namespace edgewise::xnnpack {

inline constexpr size_t kHugePage = size_t{1} << 21;

// At least `size` bytes, aligned as tensors are; null if there are none.
std::shared_ptr<std::byte> allocate_shared(size_t size);

// What XNNPACK takes its memory from: the heap, and huge pages for large blocks.
const xnn_allocator& allocator();

}  // namespace edgewise::xnnpack
