// Upcasts: bfloat16 everywhere, float16 where it is better computed in float32.
//
// What such a node reads is converted before, its result after; between two of them nothing is.
// On a CPU without float16 arithmetic that leaves conversions of the delegate's inputs and
// outputs. Filters and biases of convolutions are given to XNNPACK as float32 in any case; if it
// computes in float16, it rounds them back when it packs them.
#pragma once

#include "backends/xnnpack/graph.h"
#include "backends/xnnpack/half_support.h"

namespace edgewise::xnnpack {

// `graph` must have passed check_types. Adds values and nodes; converts no data.
void upcast_half(Graph* graph, TakesHalf takes_half);

}  // namespace edgewise::xnnpack
