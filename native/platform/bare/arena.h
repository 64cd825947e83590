// Memory for a program without a heap: all that is ever taken comes from one array.
#pragma once

#include <cstddef>
#include <cstdint>

namespace edgewise::platform::bare {

// First fit over blocks that lie side by side. Blocks that are freed join free ones behind them, so
// that what calls take for a while and give back is there again, always at the same place.
class Arena {
 public:
  // `memory`: aligned to kUnit.
  constexpr Arena(void* memory, size_t bytes)
      : begin_(static_cast<std::byte*>(memory)), end_(begin_ + bytes / kUnit * kUnit) {}

  // `alignment`: a power of two. Null if there is no gap for it.
  void* take(size_t bytes, size_t alignment) {
    if (!is_ready_) start();
    if (bytes > static_cast<size_t>(end_ - begin_)) return nullptr;
    bytes = bytes == 0 ? kUnit : (bytes + kUnit - 1) / kUnit * kUnit;
    if (alignment < kUnit) alignment = kUnit;
    for (std::byte* at = begin_; at != end_; at += sizeof(Block) + block(at)->bytes) {
      if (block(at)->is_used) continue;
      join(at);
      std::byte* data = at + sizeof(Block);
      const size_t skip = -reinterpret_cast<uintptr_t>(data) & (alignment - 1);
      // What is skipped becomes a block of its own.
      if (skip > block(at)->bytes || bytes > block(at)->bytes - skip) continue;
      if (skip != 0) {
        split(at, skip - sizeof(Block));
        at += skip;
      }
      if (block(at)->bytes - bytes > sizeof(Block)) split(at, bytes);
      block(at)->is_used = true;
      used_ += sizeof(Block) + block(at)->bytes;
      if (used_ > peak_) peak_ = used_;
      const size_t reached = static_cast<size_t>(at - begin_) + sizeof(Block) + block(at)->bytes;
      if (reached > reached_) reached_ = reached;
      ++count_;
      return at + sizeof(Block);
    }
    return nullptr;
  }

  // Of take(), or null.
  void give_back(void* data) {
    if (data == nullptr) return;
    Block* freed = block(static_cast<std::byte*>(data) - sizeof(Block));
    freed->is_used = false;
    used_ -= sizeof(Block) + freed->bytes;
  }

  size_t used() const { return used_; }        // bytes now
  size_t peak() const { return peak_; }        // bytes, the most at once
  size_t reached() const { return reached_; }  // bytes from the beginning to the last one ever used
  size_t count() const { return count_; }      // calls of take() that gave something

 private:
  struct alignas(8) Block {
    size_t bytes;  // of what follows it, a multiple of kUnit
    size_t is_used;
  };
  static constexpr size_t kUnit = sizeof(Block);

  static Block* block(std::byte* at) { return reinterpret_cast<Block*>(at); }

  void start() {
    is_ready_ = true;
    if (begin_ != end_) *block(begin_) = {static_cast<size_t>(end_ - begin_) - sizeof(Block), 0};
  }
  // The block takes in free ones behind it.
  void join(std::byte* at) {
    while (true) {
      std::byte* next = at + sizeof(Block) + block(at)->bytes;
      if (next == end_ || block(next)->is_used) return;
      block(at)->bytes += sizeof(Block) + block(next)->bytes;
    }
  }
  // The block keeps `bytes`; a free one follows.
  void split(std::byte* at, size_t bytes) {
    const size_t rest = block(at)->bytes - bytes - sizeof(Block);
    block(at)->bytes = bytes;
    *block(at + sizeof(Block) + bytes) = {rest, 0};
  }

  std::byte* begin_;
  std::byte* end_;
  size_t used_ = 0;
  size_t peak_ = 0;
  size_t reached_ = 0;
  size_t count_ = 0;
  bool is_ready_ = false;
};

}  // namespace edgewise::platform::bare
