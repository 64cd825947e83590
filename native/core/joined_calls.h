// Instructions in a row that one kernel of the runtime computes as well.
//
// A file spells in core operators what PyTorch has one operator for, so that every runtime of the
// format takes it: `linear` is a transposed copy and a product, `hardswish` four passes over
// memory. What a method holds of that is found when it is read, and runs as one call.
#pragma once

#include "method_plan.h"

namespace edgewise {

// All of the method, by their first instructions; none overlap.
//
// The results between the instructions are then not computed. So nobody else may read them, nor
// what lies in their memory without an instruction that writes it there (see output_binding.cpp).
std::vector<JoinedCall> find_joined_calls(const MethodPlan& plan);

}  // namespace edgewise
