// An output can move out of its planned memory if it is written as a whole by one known
// instruction, and nobody relies on finding its bytes, or those of an alias of it, in the
// old memory. Files may have views without an instruction: two values in the same memory
// of which one is written and the other read. So for output O:
//
//   1. O is a planned tensor, once among the outputs, not an input, not a mutable buffer
//      with an initial value or in a shared arena.
//   2. No jumps, moves or frees in the method: instructions run once, in order.
//   3. The first instruction that uses O writes it: a kernel that has it once as an
//      `out` argument, or a delegate.
//   4. From that instruction on, no value that shares memory with O is used, nor is
//      one an output. Before a delegate call none may be used at all: O could be an
//      unwritten view of it that the delegate reads.
//   5. No later delegate reads O: delegates may read past the end of their inputs.
//
// Kernels of the runtime that move pointers about (executorch_prim) are refused.
#include "output_binding.h"

#include <algorithm>

#include "def_use.h"
#include "method_memory.h"

namespace edgewise {

using Kind = InstructionPlan::Kind;

bool can_bind_output(const MethodPlan& plan, size_t index, const ArgumentCount& kernel_arguments) {
  const uint32_t value = plan.outputs[index];
  if (!is_planned_alone(plan, value) || std::ranges::count(plan.outputs, value) != 1 ||
      std::ranges::count(plan.inputs, value) != 0) {
    return false;
  }
  const auto aliases = [&](uint32_t other) {
    return other != value && shares_memory(plan, value, other);
  };
  if (std::ranges::any_of(plan.outputs, aliases)) return false;

  bool alias_seen = std::ranges::any_of(plan.inputs, aliases);
  bool written = false;
  for (const InstructionPlan& instruction : plan.instructions) {
    if (instruction.kind != Kind::kKernel && instruction.kind != Kind::kDelegate) return false;
    const bool uses_alias = any_use(plan, instruction, aliases);
    const bool uses_value =
        any_use(plan, instruction, [&](uint32_t used) { return used == value; });
    if (written) {
      if (uses_alias) return false;
      if (uses_value && instruction.kind == Kind::kDelegate) return false;
      continue;
    }
    if (uses_value) {
      if (uses_alias) return false;
      if (instruction.kind == Kind::kDelegate) {
        if (alias_seen || std::ranges::count(instruction.args, value) != 1) return false;
      } else if (!writes_only(plan, instruction, value, kernel_arguments(instruction.target))) {
        return false;
      }
      written = true;
    }
    alias_seen = alias_seen || uses_alias;
  }
  return written;
}

}  // namespace edgewise
