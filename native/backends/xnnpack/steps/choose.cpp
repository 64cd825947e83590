#include "backends/xnnpack/steps/choose.h"

#include "backends/xnnpack/steps/attention_step.h"
#include "backends/xnnpack/steps/depthwise_step.h"
#include "backends/xnnpack/steps/product_step.h"
#include "backends/xnnpack/steps/small_step.h"
#include "backends/xnnpack/steps/winograd_step.h"

namespace edgewise::xnnpack {

std::vector<Choice> choose_steps(const Graph& graph, const std::vector<Shape>& shapes,
                                 const FloatKernels* kernels, bool with_small) {
  std::vector<Choice> choices;
  if (kernels == nullptr) return choices;
  const Readers readers(graph);
  std::vector<bool> is_taken(graph.nodes.size());
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const NodeKind kind = graph.nodes[i].kind;
    if (kind == NodeKind::kSoftmax) {
      const auto nodes = attention_nodes(graph, readers, i);
      if (!nodes || !suits_attention(shapes, *nodes, *kernels)) continue;
      for (size_t node : nodes->nodes) is_taken[node] = true;
      choices.push_back({nodes->nodes, [nodes = *nodes, kernels](ProgramState& state) {
                           return AttentionStep::make(nodes, *kernels, state);
                         }});
      continue;
    }
    if (is_taken[i]) continue;
    if (kind == NodeKind::kConv2d || kind == NodeKind::kDepthwiseConv2d) {
      const auto found = depthwise_nodes(graph, shapes, readers, is_taken, i);
      const auto nodes = found ? suited_depthwise(shapes, *found, *kernels) : found;
      if (nodes) {
        for (size_t node : nodes->nodes) is_taken[node] = true;
        choices.push_back({nodes->nodes, [&graph, nodes = *nodes, kernels](ProgramState& state) {
                             return DepthwiseStep::make(graph, nodes, *kernels, state);
                           }});
        if (is_taken[i]) continue;
      }
    }
    if (kind != NodeKind::kConv2d && kind != NodeKind::kFullyConnected) continue;
    const auto nodes = linear_nodes(graph, shapes, readers, is_taken, i);
    if (!nodes) continue;
    Choice choice{.nodes = nodes->nodes, .make = {}};
    if (suits_winograd(graph, shapes, *nodes)) {
      choice.make = [&graph, nodes = *nodes, kernels](ProgramState& state) {
        return WinogradStep::make(graph, nodes, *kernels, state);
      };
    } else if (suits_product(graph, shapes, *nodes, *kernels)) {
      choice.make = [&graph, nodes = *nodes, kernels](ProgramState& state) {
        return ProductStep::make(graph, nodes, *kernels, state);
      };
    } else {
      continue;
    }
    for (size_t node : choice.nodes) is_taken[node] = true;
    choices.push_back(std::move(choice));
  }
  if (!with_small) return choices;
  for (std::vector<size_t>& group : small_groups(graph, shapes, is_taken)) {
    choices.push_back(
        {group, [&graph, group](ProgramState&) { return SmallStep::make(graph, group); }});
  }
  return choices;
}

}  // namespace edgewise::xnnpack
