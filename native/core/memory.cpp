#include "memory.h"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <utility>

#include "checked.h"

namespace edgewise {

namespace {

// From here on blocks are mapped.
constexpr size_t kMapThreshold = size_t{1} << 20;

}  // namespace

size_t padded_size(size_t bytes) {
  size_t sum = 0;
  if (!checked_add(bytes, kReadPadding, &sum) || !align_up(sum, kBufferAlignment, &sum)) return 0;
  return sum;
}

void* allocate_padded(size_t bytes) {
  const size_t total = padded_size(bytes);
  if (total == 0) return nullptr;
  if (total >= kMapThreshold) {
    void* data =
        mmap(nullptr, total, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, /*fd=*/-1, 0);
    return data == MAP_FAILED ? nullptr : data;
  }
  void* data = std::aligned_alloc(kBufferAlignment, total);
  if (data != nullptr) std::memset(data, 0, total);
  return data;
}

void free_padded(void* data, size_t bytes) {
  if (data == nullptr) return;
  const size_t total = padded_size(bytes);
  if (total >= kMapThreshold) {
    munmap(data, total);
  } else {
    std::free(data);
  }
}

void clear_padded(void* data, size_t bytes) {
  if (data == nullptr) return;
  const size_t total = padded_size(bytes);
  // Private anonymous pages come back as zeros; touching them all could be more than the
  // machine has.
  if (total >= kMapThreshold && madvise(data, total, MADV_DONTNEED) == 0) return;
  std::memset(data, 0, total);
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
