// An input can stay in the caller's memory if all that touches it are delegates that read it, and
// nobody relies on finding its bytes in the planned place. So for input I:
//
//   1. I is a planned tensor, once among the inputs, not an output, not a mutable buffer with an
//      initial value or in a shared arena.
//   2. No other value shares its memory.
//   3. Every instruction that mentions I is a call of a delegate that has it as an argument, not
//      inside of a list, and reads it to its end and no further.
#include "input_lending.h"

#include <algorithm>

#include "method_memory.h"

namespace edgewise {

namespace {

using Kind = InstructionPlan::Kind;

bool is_in_list(const MethodPlan& plan, uint32_t list, uint32_t value) {
  const auto* tensors = std::get_if<TensorListPlan>(&plan.values[list]);
  return tensors != nullptr && std::ranges::count(tensors->items, value) != 0;
}

// Rule 3.
bool leaves_in_place(const MethodPlan& plan, const InstructionPlan& instruction, uint32_t value,
                     const std::function<bool(uint32_t, size_t)>& reads_within) {
  if (instruction.kind != Kind::kKernel && instruction.kind != Kind::kDelegate) {
    const bool writes = instruction.kind == Kind::kMove && instruction.destination == value;
    return instruction.target != value && !writes;
  }
  for (size_t i = 0; i < instruction.args.size(); ++i) {
    if (is_in_list(plan, instruction.args[i], value)) return false;
    if (instruction.args[i] != value) continue;
    if (instruction.kind != Kind::kDelegate || !reads_within(instruction.target, i)) return false;
  }
  return true;
}

}  // namespace

bool can_lend_input(const MethodPlan& plan, size_t index,
                    const std::function<bool(uint32_t, size_t)>& reads_within) {
  const uint32_t value = plan.inputs[index];
  const TensorPlan* tensor = plan.tensor(value);
  if (tensor == nullptr || tensor->storage != TensorPlan::Storage::kPlanned ||
      tensor->has_initial() || plan.shared_arenas[tensor->arena] ||
      std::ranges::count(plan.inputs, value) != 1 || std::ranges::count(plan.outputs, value) != 0) {
    return false;
  }
  for (uint32_t other = 0; other < plan.values.size(); ++other) {
    if (other != value && shares_memory(plan, value, other)) return false;
  }
  return std::ranges::all_of(plan.instructions, [&](const InstructionPlan& instruction) {
    return leaves_in_place(plan, instruction, value, reads_within);
  });
}

}  // namespace edgewise
