// Memory that tensors live in.
#pragma once

#include <cstddef>

#include "edgewise/status.h"
#include "edgewise/tensor.h"

namespace edgewise {

// From one block to the next, where they lie side by side: `bytes` and kReadPadding, up to a
// multiple of kBufferAlignment; 0 where that overflows.
size_t padded_size(size_t bytes);

// `bytes` zeros, aligned to kBufferAlignment and followed by kReadPadding readable
// bytes; null if there is no memory. Large blocks are mapped: their pages cost nothing
// until they are touched, however much a file asks for.
void* allocate_padded(size_t bytes);
// `bytes` as it was passed to allocate_padded.
void free_padded(void* data, size_t bytes);
// Makes the block all zeros again.
void clear_padded(void* data, size_t bytes);

// A padded block, which it owns.
class MemoryBlock {
 public:
  MemoryBlock() = default;
  ~MemoryBlock();
  MemoryBlock(MemoryBlock&& other) noexcept;
  MemoryBlock& operator=(MemoryBlock&& other) noexcept;

  static Result<MemoryBlock> allocate(size_t bytes);

  std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  void clear();

 private:
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace edgewise
