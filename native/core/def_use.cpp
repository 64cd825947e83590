#include "def_use.h"

namespace edgewise {

size_t count_uses(const MethodPlan& plan, const InstructionPlan& instruction, uint32_t value) {
  size_t uses = 0;
  any_use(plan, instruction, [&](uint32_t used) {
    if (used == value) ++uses;
    return false;
  });
  return uses;
}

bool writes_only(const MethodPlan& plan, const InstructionPlan& call, uint32_t value,
                 size_t arguments) {
  const std::string& name = plan.operators[call.target];
  if (name.starts_with("executorch_prim::") || !name.ends_with("out")) return false;
  const auto returned = returned_values(plan, call, arguments);
  return std::ranges::count(returned, value) == 1 && count_uses(plan, call, value) == 2;
}

std::span<const uint32_t> returned_values(const MethodPlan& plan, const InstructionPlan& call,
                                          size_t arguments) {
  if (call.kind != InstructionPlan::Kind::kKernel || arguments > call.args.size()) return {};
  if (plan.operators[call.target].starts_with("executorch_prim::")) return {};
  const std::span<const uint32_t> args = call.args;
  if (arguments != 0) return args.subspan(arguments);
  // A kernel in Python takes any number; what it returns is named among its arguments before.
  size_t first = args.size();
  while (first > 0 && std::ranges::find(args.first(first - 1), args[first - 1]) !=
                          args.begin() + static_cast<std::ptrdiff_t>(first - 1)) {
    --first;
  }
  return args.subspan(first);
}

}  // namespace edgewise
