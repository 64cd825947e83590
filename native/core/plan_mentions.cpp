#include "plan_mentions.h"

namespace edgewise {

bool writes_only(const MethodPlan& plan, const InstructionPlan& call, uint32_t value,
                 size_t arguments) {
  const std::string& name = plan.operators[call.target];
  if (name.starts_with("executorch_prim::") || !name.ends_with("out")) return false;
  if (arguments > call.args.size()) return false;
  const auto returns = std::span(call.args).subspan(arguments);
  if (std::ranges::count(returns, value) != 1) return false;
  size_t mentions = 0;
  any_mention(plan, call, [&](uint32_t mentioned) {
    if (mentioned == value) ++mentions;
    return false;
  });
  return mentions == 2;
}

}  // namespace edgewise
