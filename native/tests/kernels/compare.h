// Comparison of a kernel's result with what is expected, element by element.
#pragma once

#include <string>
#include <vector>

#include "edgewise/value.h"
#include "kernels/accuracy.h"

namespace edgewise::testing {

// Empty if every element is within its bound, else a text with the first that is not: its index,
// both values, the bound, and what the arguments have there. `magnitude` (of the terms of which
// each element is the sum) may be null: the element's own. NaN is equal to NaN only, infinity to
// its own sign, and so are zeros.
std::string compare(const Value& got, const Value& expected, const AccuracyRow* accuracy,
                    const Value* magnitude, const std::vector<Value*>& arguments);

}  // namespace edgewise::testing
