#include "backends/xnnpack/executor/bfloat16_conversion.h"

#include <algorithm>

#include "backends/xnnpack/executor/parallel.h"

namespace edgewise::xnnpack {

bool is_bfloat16_conversion(const Graph& graph, const GraphNode& node) {
  if (node.kind != NodeKind::kConvert) return false;
  const DataType from = graph.values[node.inputs[0]].type;
  const DataType to = graph.values[node.outputs[0]].type;
  return (from == DataType::kBf16 && to == DataType::kFp32) ||
         (from == DataType::kFp32 && to == DataType::kBf16);
}

Bfloat16Conversion::Bfloat16Conversion(const Graph& graph, const GraphNode& node,
                                       ProgramState& state)
    : node_(node),
      is_to_float_(graph.values[node.outputs[0]].type == DataType::kFp32),
      threads_(state.threadpool()) {}

Result<std::unique_ptr<Step>> Bfloat16Conversion::make(const Graph& graph, const GraphNode& node,
                                                       ProgramState& state) {
  return std::unique_ptr<Step>(new Bfloat16Conversion(graph, node, state));
}

Status Bfloat16Conversion::reshape(const std::vector<Shape>& shapes) {
  count_ = shapes[node_.outputs[0]].elements();
  return {};
}

Status Bfloat16Conversion::set_pointers(std::span<void* const> addresses,
                                        const Scratch& /*scratch*/) {
  input_ = addresses[node_.inputs[0]];
  output_ = addresses[node_.outputs[0]];
  return {};
}

Status Bfloat16Conversion::run() {
  constexpr size_t kLeastPart = 1 << 14;  // elements that are worth a thread
  const size_t parts = std::clamp<size_t>(count_ / kLeastPart, 1, 4 * threads_of(threads_));
  parallel_for(threads_, parts, [&](size_t part, size_t) {
    const size_t start = part_start(count_, parts, part);
    const size_t end = part_start(count_, parts, part + 1);
    if (is_to_float_) {
      std::transform(static_cast<const uint16_t*>(input_) + start,
                     static_cast<const uint16_t*>(input_) + end,
                     static_cast<float*>(output_) + start, from_bfloat16);
    } else {
      std::transform(static_cast<const float*>(input_) + start,
                     static_cast<const float*>(input_) + end,
                     static_cast<uint16_t*>(output_) + start, to_bfloat16);
    }
  });
  return {};
}

}  // namespace edgewise::xnnpack
