#pragma once

#include <functional>

#include "method_plan.h"
#include "plan_mentions.h"

namespace edgewise {

// Whether input `index` of the method can be read where the caller has it, instead of in its
// planned place. True only where the plan proves it; see the rules in the source.
// `reads_within(delegate, argument)` is what Delegate::reads_within says.
bool can_lend_input(const MethodPlan& plan, size_t index, const ArgumentCount& kernel_arguments,
                    const std::function<bool(uint32_t, size_t)>& reads_within);

}  // namespace edgewise
