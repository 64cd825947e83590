// Memory that the methods of a session share: arenas that hold nothing but state.
#pragma once

#include <map>
#include <span>

#include "edgewise/program.h"
#include "memory.h"
#include "method_plan.h"

namespace edgewise {

// Says in every method which arenas are shared: from the second on (the first is the method's
// own in all files), of one size in all methods that have it, without inputs, and with no two
// values at the same offset. So ExecuTorch lays out buffers that methods share.
void find_shared_arenas(std::vector<MethodPlan>& methods);

class Session {
 public:
  // `methods` lives as long as `program`.
  static Result<std::shared_ptr<Session>> create(const Program* program,
                                                 std::span<const MethodPlan> methods);

  const Program* program() const { return program_; }
  // Null if the arena is not shared.
  std::byte* arena(size_t index) const;
  // Initial values; zeros where there are none.
  void reset();

 private:
  const Program* program_ = nullptr;  // methods keep it alive
  std::span<const MethodPlan> methods_;
  std::map<size_t, MemoryBlock> arenas_;
};

}  // namespace edgewise
