// What XNNPACK's own profile of a runtime says. The runtime must have been made with
// XNN_FLAG_BASIC_PROFILING.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "xnnpack.h"

namespace edgewise::xnnpack {

// Operators, in the order in which they run; the other lists have as many items, or none if
// XNNPACK does not tell.
size_t operator_count(xnn_runtime_t runtime);
// "Convolution (NHWC, F32) IGEMM"
std::vector<std::string> operator_names(xnn_runtime_t runtime);
// Of the last run, in microseconds, rounded down.
std::vector<uint64_t> operator_times(xnn_runtime_t runtime);

}  // namespace edgewise::xnnpack
