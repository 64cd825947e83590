// Values between the C interface and the runtime.
#pragma once

#include "edgewise.h"
#include "edgewise/program.h"

namespace edgewise::c {

// A value that refers to the caller's memory. Fails on a kind, type or shape that is none.
Result<Value> from_c(const edgewise_value& value);

// The value as the caller sees it; it points into `value`.
void to_c(const Value& value, edgewise_value* result);
// What a method says of an input or output.
void to_c(const ValueInfo& info, edgewise_value* result);

}  // namespace edgewise::c
