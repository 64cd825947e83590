// Uses and definitions: which values the instructions of a method read and write.
#pragma once

#include <algorithm>
#include <functional>
#include <span>

#include "method_plan.h"

namespace edgewise {

// The number of arguments of an operator's schema.
using ArgumentCount = std::function<size_t(uint32_t op)>;

// Whether `visit` says yes to one of the instruction's arguments or the items of those that are
// lists.
template <typename Visit>
bool any_use(const MethodPlan& plan, const InstructionPlan& instruction, Visit visit) {
  return std::ranges::any_of(instruction.args, [&](uint32_t arg) {
    if (visit(arg)) return true;
    const auto* list = std::get_if<TensorListPlan>(&plan.values[arg]);
    return list != nullptr && std::ranges::any_of(list->items, [&](uint32_t item) {
             return item != kNone && visit(item);
           });
  });
}

size_t count_uses(const MethodPlan& plan, const InstructionPlan& instruction, uint32_t value);

// Whether a kernel's call writes `value` as a whole and does not read it: it is one of the returned
// values and, among the `arguments` of the schema, there once and not inside of a list. Kernels of
// the runtime that move pointers about (executorch_prim) are none.
bool writes_only(const MethodPlan& plan, const InstructionPlan& call, uint32_t value,
                 size_t arguments);

// What a kernel's call returns, and so writes, as a whole or in part: what follows the `arguments`
// of the schema, or, if that number is not known (0), the last arguments that repeat others.
std::span<const uint32_t> returned_values(const MethodPlan& plan, const InstructionPlan& call,
                                          size_t arguments);

}  // namespace edgewise
