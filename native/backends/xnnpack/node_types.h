// Which element types a node takes together. XNNPACK's own checks end in undefined behaviour
// for some combinations, so only those that it has an operator for get past here.
#pragma once

#include "backends/xnnpack/graph.h"

namespace edgewise::xnnpack {

Status check_types(const Graph& graph);

}  // namespace edgewise::xnnpack
