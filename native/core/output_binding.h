#pragma once

#include "def_use.h"
#include "method_plan.h"

namespace edgewise {

// Whether output `index` of the method can be written to memory other than its planned
// memory with the same outcome. True only where the plan proves it; see the rules in the
// source.
bool can_bind_output(const MethodPlan& plan, size_t index, const ArgumentCount& kernel_arguments);

}  // namespace edgewise
