// XNNPACK's status codes as failures.
#pragma once

#include "backends/xnnpack/graph.h"
#include "edgewise/status.h"
#include "xnnpack.h"

namespace edgewise::xnnpack {

const char* name_of(xnn_status status);

// Ok if `status` is success; else "[xnnpack] <what> failed: <status>".
Status check_xnn(xnn_status status, const char* what);
// The same with the node's text: "[xnnpack] node 3 (Conv2d, debug handle 7): ...".
Status check_xnn(xnn_status status, const GraphNode& node);

}  // namespace edgewise::xnnpack
