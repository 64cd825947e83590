#pragma once

#include <functional>

#include "def_use.h"
#include "method_plan.h"

namespace edgewise {

// Whether input `index` of the method can be read in the caller's memory, without a copy into its
// planned memory. True only where the plan proves it; see the rules in the source.
// `reads_within(delegate, argument)` is what Delegate::reads_within says.
bool allows_zero_copy_input(const MethodPlan& plan, size_t index,
                            const ArgumentCount& kernel_arguments,
                            const std::function<bool(uint32_t, size_t)>& reads_within);

}  // namespace edgewise
