#include "memory.h"

#include <utility>

#include "checked.h"
#include "platform/zeros.h"

namespace edgewise {

size_t padded_size(size_t bytes) {
  size_t sum = 0;
  if (!checked_add(bytes, kReadPadding, &sum) || !align_up(sum, kBufferAlignment, &sum)) return 0;
  return sum;
}

void* allocate_padded(size_t bytes) {
  const size_t total = padded_size(bytes);
  return total == 0 ? nullptr : platform::allocate_zeros(total);
}

void free_padded(void* data, size_t bytes) {
  if (data != nullptr) platform::free_zeros(data, padded_size(bytes));
}

void clear_padded(void* data, size_t bytes) {
  if (data != nullptr) platform::clear_zeros(data, padded_size(bytes));
}

MemoryBlock::~MemoryBlock() { free_padded(data_, size_); }

MemoryBlock::MemoryBlock(MemoryBlock&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MemoryBlock& MemoryBlock::operator=(MemoryBlock&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

Result<MemoryBlock> MemoryBlock::allocate(size_t bytes) {
  MemoryBlock block;
  block.data_ = static_cast<std::byte*>(allocate_padded(bytes));
  if (block.data_ == nullptr) {
    return error(Code::kOutOfMemory, "[memory] %zu bytes could not be allocated", bytes);
  }
  block.size_ = bytes;
  return block;
}

void MemoryBlock::clear() { clear_padded(data_, size_); }

}  // namespace edgewise
