#include "backends/xnnpack/fold.h"

#include <algorithm>

namespace edgewise::xnnpack {
namespace {

struct Folder {
  Graph& graph;
  std::vector<uint32_t> readers;   // of each value; an output has one more
  std::vector<GraphNode*> writer;  // of each value

  // The node that writes `value`, if nothing but one reader would miss it.
  GraphNode* sole_writer(uint32_t value) const {
    return readers[value] == 1 ? writer[value] : nullptr;
  }
  bool fold_clamp(GraphNode* clamp);
  bool fold_pad(GraphNode* convolution);
};

bool Folder::fold_clamp(GraphNode* clamp) {
  GraphNode* before = sole_writer(clamp->inputs[0]);
  if (before == nullptr || traits_of(before->kind).bounds != Bounds::kAlways) return false;
  const GraphValue& from = graph.values[clamp->inputs[0]];
  const GraphValue& to = graph.values[clamp->outputs[0]];
  if (from.scale != to.scale || from.zero_point != to.zero_point) return false;
  const float min = std::max(before->min, clamp->min);
  const float max = std::min(before->max, clamp->max);
  if (!(min < max)) return false;
  before->min = min;
  before->max = max;
  before->has_bounds = true;
  before->outputs[0] = clamp->outputs[0];
  writer[clamp->outputs[0]] = before;
  clamp->add_indices(&before->fused);
  clamp->kind = NodeKind::kNothing;
  return true;
}

bool Folder::fold_pad(GraphNode* convolution) {
  GraphNode* pad = sole_writer(convolution->inputs[0]);
  if (pad == nullptr || pad->kind != NodeKind::kStaticConstantPad || pad->number != 0) return false;
  if ((convolution->flags & XNN_FLAG_TENSORFLOW_SAME_PADDING) != 0) return false;
  const auto& before = pad->list;
  const auto& after = pad->list2;
  if (before.size() != 4 || after.size() != 4) return false;
  if ((before[0] | before[3] | after[0] | after[3]) != 0) return false;
  constexpr uint32_t kLimit = 1 << 10;
  Window& window = convolution->window;
  for (uint32_t size : {before[1], before[2], after[1], after[2], window.pad_top, window.pad_left,
                        window.pad_bottom, window.pad_right}) {
    if (size > kLimit) return false;
  }
  window.pad_top += before[1];
  window.pad_left += before[2];
  window.pad_bottom += after[1];
  window.pad_right += after[2];
  convolution->inputs[0] = pad->inputs[0];
  pad->add_indices(&convolution->fused);
  pad->kind = NodeKind::kNothing;
  return true;
}

}  // namespace

void fold_nodes(Graph* graph) {
  Folder folder{*graph, std::vector<uint32_t>(graph->values.size()),
                std::vector<GraphNode*>(graph->values.size())};
  for (GraphNode& node : graph->nodes) {
    for (uint32_t input : node.inputs) {
      if (input != kNone) ++folder.readers[input];
    }
    for (uint32_t output : node.outputs) folder.writer[output] = &node;
  }
  for (uint32_t output : graph->outputs) ++folder.readers[output];
  for (GraphNode& node : graph->nodes) {
    if (node.kind == NodeKind::kClamp) folder.fold_clamp(&node);
    if (node.kind == NodeKind::kConv2d || node.kind == NodeKind::kDepthwiseConv2d) {
      folder.fold_pad(&node);
    }
  }
  graph->erase_nothing();
}

}  // namespace edgewise::xnnpack
