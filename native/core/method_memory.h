// The memory of one instance of a method, and who shares it.
#pragma once

#include <vector>

#include "memory.h"
#include "method_plan.h"

namespace edgewise {

// All arenas in one block, each aligned to kBufferAlignment and followed by kReadPadding
// readable bytes.
class MethodMemory {
 public:
  static Result<MethodMemory> allocate(const MethodPlan& plan);

  std::byte* at(const TensorPlan& tensor) const {
    return block_.data() + begins_[tensor.arena] + tensor.offset;
  }
  void clear() { block_.clear(); }

 private:
  MemoryBlock block_;
  std::vector<size_t> begins_;  // of the arenas in the block
};

// For every value: whether it is a planned tensor whose memory no other value shares.
std::vector<bool> find_exclusive(const MethodPlan& plan);

// Whether two values are planned tensors that share memory.
bool shares_memory(const MethodPlan& plan, uint32_t a, uint32_t b);

}  // namespace edgewise
