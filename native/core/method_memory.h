// The memory of one instance of a method, and who shares it.
#pragma once

#include <memory>
#include <vector>

#include "memory.h"
#include "method_plan.h"
#include "session.h"

namespace edgewise {

// The arenas that are not the session's in one block, each aligned to kBufferAlignment and
// followed by kReadPadding readable bytes.
class MethodMemory {
 public:
  static Result<MethodMemory> allocate(const MethodPlan& plan, std::shared_ptr<Session> session);

  std::byte* at(const TensorPlan& tensor) const { return begins_[tensor.arena] + tensor.offset; }
  // Zeros, and initial values in what is the session's.
  void clear();

 private:
  MemoryBlock block_;
  std::shared_ptr<Session> session_;
  std::vector<std::byte*> begins_;  // of the arenas
};

// For every value: whether it is a planned tensor whose memory no other value shares.
std::vector<bool> find_exclusive(const MethodPlan& plan);

// Whether a value is a planned tensor, in memory that is not shared with other methods, and not
// state.
bool is_planned_alone(const MethodPlan& plan, uint32_t value);

// Whether two values are planned tensors that share memory.
bool shares_memory(const MethodPlan& plan, uint32_t a, uint32_t b);

}  // namespace edgewise
