#pragma once

#include <functional>

#include "method_plan.h"

namespace edgewise {

// Whether output `index` of the method can be written to memory other than its planned
// place with the same outcome. True only where the plan proves it; see the rules in the
// source. `kernel_arguments(operator)` gives the number of arguments of an operator's
// schema.
bool can_bind_output(const MethodPlan& plan, size_t index,
                     const std::function<size_t(uint32_t)>& kernel_arguments);

}  // namespace edgewise
