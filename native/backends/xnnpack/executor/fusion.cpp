#include "backends/xnnpack/executor/fusion.h"

#include "backends/xnnpack/executor/elementwise_fusion.h"
#include "backends/xnnpack/executor/fused_attention.h"
#include "backends/xnnpack/executor/fused_convolution.h"
#include "backends/xnnpack/executor/fused_depthwise.h"
#include "backends/xnnpack/executor/fused_gemm.h"
#include "backends/xnnpack/executor/fused_row_gemm.h"
#include "backends/xnnpack/executor/fused_winograd.h"
#include "backends/xnnpack/executor/int8_convolution.h"

namespace edgewise::xnnpack {

std::vector<Fusion> choose_fusions(const Graph& graph, const std::vector<Shape>& shapes,
                                   const FloatKernels* kernels) {
  std::vector<Fusion> fusions;
  if (kernels == nullptr) return fusions;
  const Readers readers(graph);
  std::vector<bool> is_taken(graph.nodes.size());
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const NodeKind kind = graph.nodes[i].kind;
    if (kind == NodeKind::kSoftmax) {
      const auto nodes = attention_nodes(graph, readers, i);
      if (!nodes || !suits_attention(shapes, *nodes, *kernels)) continue;
      for (size_t node : nodes->nodes) is_taken[node] = true;
      fusions.push_back({nodes->nodes, [nodes = *nodes, kernels](ProgramState& state) {
                           return FusedAttention::make(nodes, *kernels, state);
                         }});
      continue;
    }
    if (is_taken[i]) continue;
    if (const RowGemmKernels* rows = row_gemm_kernels();
        rows != nullptr && kind == NodeKind::kConvert) {
      const auto nodes = row_gemm_nodes(graph, readers, i, *rows);
      if (!nodes) continue;
      for (size_t node : nodes->nodes) is_taken[node] = true;
      fusions.push_back({.nodes = nodes->nodes,
                         .make =
                             [&graph, nodes = *nodes, rows](ProgramState& state) {
                               return FusedRowGemm::make(graph, nodes, *rows, state);
                             },
                         .runs_first = true});
      continue;
    }
    if (kind == NodeKind::kConv2d || kind == NodeKind::kDepthwiseConv2d) {
      const auto found = depthwise_nodes(graph, shapes, readers, is_taken, i);
      const auto nodes = found ? suited_depthwise(shapes, *found, *kernels) : found;
      if (nodes) {
        for (size_t node : nodes->nodes) is_taken[node] = true;
        fusions.push_back({nodes->nodes, [&graph, nodes = *nodes, kernels](ProgramState& state) {
                             return FusedDepthwise::make(graph, nodes, *kernels, state);
                           }});
        if (is_taken[i]) continue;
      }
    }
    if (kind != NodeKind::kConv2d && kind != NodeKind::kFullyConnected) continue;
    if (const Int8Kernels* int8 = int8_kernels();
        int8 != nullptr && suits_int8_convolution(graph, shapes, graph.nodes[i], *int8)) {
      is_taken[i] = true;
      fusions.push_back({{i}, [&graph, i, int8](ProgramState& state) {
                           return Int8Convolution::make(graph, graph.nodes[i], *int8, state);
                         }});
      continue;
    }
    const auto nodes = linear_nodes(graph, shapes, readers, is_taken, i);
    if (!nodes) continue;
    Fusion fusion{.nodes = nodes->nodes, .make = {}};
    if (suits_winograd(graph, shapes, *nodes)) {
      fusion.make = [&graph, nodes = *nodes, kernels](ProgramState& state) {
        return FusedWinograd::make(graph, nodes, *kernels, state);
      };
    } else if (suits_gemm(graph, shapes, *nodes, *kernels)) {
      fusion.make = [&graph, nodes = *nodes, kernels](ProgramState& state) {
        return FusedGemm::make(graph, nodes, *kernels, state);
      };
    } else if (kTakesSegments && suits_convolution(graph, shapes, *nodes, *kernels)) {
      fusion.make = [&graph, nodes = *nodes, kernels](ProgramState& state) {
        return FusedConvolution::make(graph, nodes, *kernels, state);
      };
    } else {
      continue;
    }
    for (size_t node : fusion.nodes) is_taken[node] = true;
    fusions.push_back(std::move(fusion));
  }
  for (std::vector<size_t>& group : elementwise_groups(graph, shapes, is_taken)) {
    fusions.push_back(
        {group, [&graph, group](ProgramState&) { return ElementwiseFusion::make(graph, group); }});
  }
  return fusions;
}

}  // namespace edgewise::xnnpack
