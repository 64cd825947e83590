#pragma once

#include "edgewise/program.h"

namespace edgewise {

// Checks `value` against what the method takes as an input and copies it to `target`.
// `rule` is the method's description of the input; `fixed`: a number that no instruction
// reads, so that only the value of export time is right. Failures read "must be ...".
Status copy_input(const ValueInfo& rule, const Value& value, bool fixed, Value& target);

// The same for a tensor, but `target` takes its memory where it is laid out as the method has it.
// Returns whether it did; else it was copied.
Result<bool> set_input_zero_copy(const ValueInfo& rule, const Value& value, Value& target);

}  // namespace edgewise
