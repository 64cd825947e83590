#include "backends/xnnpack/executor/fused_unary.h"

#include <algorithm>

#include "backends/xnnpack/executor/linear_nodes.h"
#include "backends/xnnpack/executor/parallel.h"
#include "core/cpu_level.h"
#include "hwy/detect_targets.h"

namespace edgewise::xnnpack {
namespace {

UnaryFunction function_of(NodeKind kind) {
  switch (kind) {
    case NodeKind::kExp:
      return UnaryFunction::kExp;
    case NodeKind::kSin:
      return UnaryFunction::kSin;
    case NodeKind::kCos:
      return UnaryFunction::kCos;
    case NodeKind::kLog:
      return UnaryFunction::kLog;
    case NodeKind::kSquareRoot:
      return UnaryFunction::kSqrt;
    default:
      return UnaryFunction::kRsqrt;
  }
}

// XNNPACK's logarithm of infinity is 88.4, that of NaN 88.8, but with AVX-512. On x86 its square
// root of infinity and one divided by that are NaN; above 8.5e37 they are off by half and a third.
bool are_xnnpacks_right(NodeKind kind) {
  switch (kind) {
    case NodeKind::kLog:
      return HWY_ARCH_X86 && cpu_level().target <= HWY_AVX3;
    case NodeKind::kSquareRoot:
    case NodeKind::kReciprocalSquareRoot:
      return !HWY_ARCH_X86;
    default:
      return false;
  }
}

}  // namespace

const char* unary_rule(const Graph& graph, const GraphNode& node) {
  if (are_xnnpacks_right(node.kind)) return "a function that XNNPACK is slow or wrong about";
  const bool fits = is_plain(graph, node.inputs[0]) && is_plain(graph, node.outputs[0]) &&
                    node.flags == 0 && !node.is_bounded();
  return fits ? nullptr : "numbers of float32";
}

FusedUnary::FusedUnary(const GraphNode& node, const FloatKernels& kernels, ProgramState& state)
    : FusedKernel("Unary", kernels, state, {node.inputs[0]}, {node.outputs[0]}),
      node_(node),
      function_(function_of(node.kind)) {}

Result<std::unique_ptr<Step>> FusedUnary::make(const GraphNode& node, const FloatKernels& kernels,
                                               ProgramState& state) {
  return std::unique_ptr<Step>(new FusedUnary(node, kernels, state));
}

Status FusedUnary::reshape(const std::vector<Shape>& shapes) {
  count_ = shapes[node_.outputs[0]].elements();
  return {};
}

Status FusedUnary::set_pointers(std::span<void* const> addresses, const Scratch& /*scratch*/) {
  input_ = static_cast<const float*>(addresses[node_.inputs[0]]);
  output_ = static_cast<float*>(addresses[node_.outputs[0]]);
  return {};
}

Status FusedUnary::run() {
  constexpr size_t kLeastPart = 4096;  // elements that are worth a thread
  const size_t parts = std::clamp<size_t>(count_ / kLeastPart, 1, 4 * threads_of(threads_));
  parallel_for(threads_, parts, [&](size_t part, size_t) {
    const size_t start = part_start(count_, parts, part);
    const size_t end = part_start(count_, parts, part + 1);
    run_unary_function(function_, input_ + start, output_ + start, end - start);
  });
  return {};
}

}  // namespace edgewise::xnnpack
