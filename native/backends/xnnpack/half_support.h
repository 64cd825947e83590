// What XNNPACK computes in float16 on this CPU.
#pragma once

#include "backends/xnnpack/graph.h"

namespace edgewise::xnnpack {

// A node some of whose values are fp16. Both are found by trying, once in the process.
using TakesHalf = bool (*)(const Graph& graph, const GraphNode& node);

// Whether XNNPACK has a kernel for it.
bool has_half_kernel(const Graph& graph, const GraphNode& node);
// Whether it has, and the CPU has arithmetic for that.
bool is_fast_in_half(const Graph& graph, const GraphNode& node);

}  // namespace edgewise::xnnpack
