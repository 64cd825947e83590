#include "backends/xnnpack/xnn_error.h"

namespace edgewise::xnnpack {
namespace {

Code code_of(xnn_status status) {
  switch (status) {
    case xnn_status_out_of_memory:
      return Code::kOutOfMemory;
    case xnn_status_unsupported_parameter:
    case xnn_status_unsupported_hardware:
      return Code::kUnsupported;
    default:
      return Code::kBackend;
  }
}

}  // namespace

const char* name_of(xnn_status status) {
  switch (status) {
    case xnn_status_success:
      return "success";
    case xnn_status_uninitialized:
      return "not initialized";
    case xnn_status_invalid_parameter:
      return "invalid parameter";
    case xnn_status_invalid_state:
      return "invalid state";
    case xnn_status_unsupported_parameter:
      return "unsupported parameter";
    case xnn_status_unsupported_hardware:
      return "unsupported hardware";
    case xnn_status_out_of_memory:
      return "out of memory";
    case xnn_status_reallocation_required:
      return "reallocation required";
    default:
      return "unknown status";
  }
}

Status check_xnn(xnn_status status, const char* what) {
  if (status == xnn_status_success) return {};
  return error(code_of(status), "[xnnpack] %s failed: %s", what, name_of(status));
}

Status check_xnn(xnn_status status, const GraphNode& node) {
  if (status == xnn_status_success) return {};
  return node_error(code_of(status), node, "XNNPACK does not take it: %s", name_of(status));
}

}  // namespace edgewise::xnnpack
