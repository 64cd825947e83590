// An input can stay in the caller's memory if all that touches it are delegates that read it, and
// no instruction expects its bytes in the planned memory. So for input I:
//
//   1. I is a planned tensor, once among the inputs, not an output, not a mutable buffer with an
//      initial value or in a shared arena.
//   2. Every instruction that uses I is a call of a delegate that has it as an argument, not
//      inside of a list, and reads it to its end and no further.
//   3. A value that shares its memory is written as a whole by a kernel, after the last use of
//      I and before any other use of that value, if it is used or an output. Where there
//      is such a value, the method has no jumps, moves or frees: instructions run once, in order.
#include "zero_copy_input.h"

#include <algorithm>
#include <vector>

#include "method_memory.h"

namespace edgewise {

namespace {

using Kind = InstructionPlan::Kind;

bool is_call(const InstructionPlan& instruction) {
  return instruction.kind == Kind::kKernel || instruction.kind == Kind::kDelegate;
}

// Rule 2: an instruction does not need the value in its planned memory.
bool leaves_in_place(const MethodPlan& plan, const InstructionPlan& instruction, uint32_t value,
                     const std::function<bool(uint32_t, size_t)>& reads_within) {
  if (!is_call(instruction)) {
    const bool is_written = instruction.kind == Kind::kMove && instruction.destination == value;
    return instruction.target != value && !is_written;
  }
  const size_t uses = count_uses(plan, instruction, value);
  if (uses == 0) return true;
  if (instruction.kind != Kind::kDelegate) return false;
  size_t reads = 0;
  for (size_t i = 0; i < instruction.args.size(); ++i) {
    if (instruction.args[i] == value && reads_within(instruction.target, i)) ++reads;
  }
  return reads == uses;
}

// Rule 3, in one pass, as hostile files have many values: what shares the value's memory is written
// before it is used.
bool are_replaced(const MethodPlan& plan, uint32_t value, const ArgumentCount& kernel_arguments) {
  enum class Alias : uint8_t { kNo, kAsItWas, kWritten };
  std::vector<Alias> aliases(plan.values.size(), Alias::kNo);
  bool has_aliases = false;
  for (uint32_t other = 0; other < plan.values.size(); ++other) {
    if (other == value || !shares_memory(plan, value, other)) continue;
    aliases[other] = Alias::kAsItWas;
    has_aliases = true;
  }
  if (!has_aliases) return true;
  const auto is_as_it_was = [&](uint32_t other) { return aliases[other] == Alias::kAsItWas; };
  if (std::ranges::any_of(plan.inputs, is_as_it_was)) return false;
  bool is_memory_written = false;
  std::vector<uint32_t> written;
  for (const InstructionPlan& instruction : plan.instructions) {
    if (!is_call(instruction)) return false;
    bool is_read = false;
    written.clear();
    any_use(plan, instruction, [&](uint32_t used) {
      is_read = is_read || used == value;
      if (is_as_it_was(used)) written.push_back(used);
      return false;
    });
    for (const uint32_t other : written) {
      if (instruction.kind != Kind::kKernel ||
          !writes_only(plan, instruction, other, kernel_arguments(instruction.target))) {
        return false;
      }
      aliases[other] = Alias::kWritten;
    }
    is_memory_written = is_memory_written || !written.empty();
    if (is_read && is_memory_written) return false;
  }
  return std::ranges::none_of(plan.outputs, is_as_it_was);
}

}  // namespace

bool allows_zero_copy_input(const MethodPlan& plan, size_t index,
                            const ArgumentCount& kernel_arguments,
                            const std::function<bool(uint32_t, size_t)>& reads_within) {
  const uint32_t value = plan.inputs[index];
  if (!is_planned_alone(plan, value) || std::ranges::count(plan.inputs, value) != 1 ||
      std::ranges::count(plan.outputs, value) != 0) {
    return false;
  }
  const bool is_left = std::ranges::all_of(plan.instructions, [&](const auto& instruction) {
    return leaves_in_place(plan, instruction, value, reads_within);
  });
  return is_left && are_replaced(plan, value, kernel_arguments);
}

}  // namespace edgewise
