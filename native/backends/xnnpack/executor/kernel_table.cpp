#include "backends/xnnpack/executor/kernel_table.h"

#include <algorithm>

#include "backends/xnnpack/executor/bfloat16_conversion.h"
#include "backends/xnnpack/executor/elementwise_fusion.h"
#include "backends/xnnpack/executor/fused_attention.h"
#include "backends/xnnpack/executor/fused_batch_gemm.h"
#include "backends/xnnpack/executor/fused_convolution.h"
#include "backends/xnnpack/executor/fused_depthwise.h"
#include "backends/xnnpack/executor/fused_gemm.h"
#include "backends/xnnpack/executor/fused_normalization.h"
#include "backends/xnnpack/executor/fused_row_gemm.h"
#include "backends/xnnpack/executor/fused_unary.h"
#include "backends/xnnpack/executor/fused_update.h"
#include "backends/xnnpack/executor/fused_weight_only.h"
#include "backends/xnnpack/executor/fused_winograd.h"
#include "backends/xnnpack/executor/int8_convolution.h"
#include "backends/xnnpack/executor/int8_depthwise.h"
#include "backends/xnnpack/executor/int8_winograd.h"
#include "backends/xnnpack/executor/sme_gemm.h"

namespace edgewise::xnnpack {
namespace {

using Found = std::optional<Fusion>;

// What a row looks at.
struct Choosing {
  const Graph& graph;
  const std::vector<Shape>& shapes;
  const Readers readers;
  const FloatKernels& floats;
  std::vector<bool> is_taken;

  const GraphNode& node(size_t i) const { return graph.nodes[i]; }
};

// The nodes that a row's kernel runs from node `i` on; else, in `rule`, what it asks for.
using Choose = Found (*)(const Choosing& c, size_t i, const char** rule);

Found attention(const Choosing& c, size_t i, const char** rule) {
  const auto nodes = attention_nodes(c.graph, c.shapes, c.readers, i);
  *rule = "products of matrices before and after it, of queries, keys and values";
  if (!nodes || (*rule = attention_rule(c.shapes, *nodes, c.floats)) != nullptr) return {};
  return Fusion{nodes->nodes,
                [&graph = c.graph, nodes = *nodes, &kernels = c.floats](ProgramState& state) {
                  return FusedAttention::make(graph, nodes, kernels, state);
                }};
}

Found normalization(const Choosing& c, size_t i, const char** rule) {
  const auto nodes = normalization_nodes(c.graph, c.shapes, c.readers, i);
  if (!nodes || (*rule = normalization_rule(c.shapes, *nodes)) != nullptr) return {};
  return Fusion{nodes->nodes,
                [&graph = c.graph, nodes = *nodes, &kernels = c.floats](ProgramState& state) {
                  return FusedNormalization::make(graph, nodes, kernels, state);
                }};
}

Found row_gemm(const Choosing& c, size_t i, const char** rule) {
  if (c.graph.values[c.node(i).outputs[0]].type != DataType::kQdint8) return {};
  *rule = "AVX512-VNNI or AVX2, or KleidiAI and dot products of bytes";
  if (row_gemm_kernels(DataType::kQcint4) == nullptr) return {};
  const auto nodes = row_gemm_nodes(c.graph, c.readers, i);
  *rule = "rows of float32, read by products with constant weights of 4 or 8 bits only";
  if (!nodes) return {};
  return Fusion{.nodes = nodes->nodes,
                .make =
                    [&graph = c.graph, nodes = *nodes](ProgramState& state) {
                      return FusedRowGemm::make(graph, nodes, *nodes.kernels, state);
                    },
                .runs_first = true};
}

Found depthwise(const Choosing& c, size_t i, const char** rule) {
  auto nodes = depthwise_nodes(c.graph, c.shapes, c.readers, c.is_taken, i);
  if (c.node(i).kind == NodeKind::kDepthwiseConv2d) {
    *rule = "float32, 3x3 or 5x5, no dilation, one result for each channel";
  }
  // With SME2 convolutions beside it are faster by themselves.
  const bool has_sme = sme_kernels(DataType::kFp32) != nullptr;
  const FloatKernels floats = has_sme ? without_gemms(c.floats) : c.floats;
  if (!nodes || (*rule = depthwise_rule(c.shapes, floats, &*nodes)) != nullptr) return {};
  return Fusion{nodes->nodes,
                [&graph = c.graph, nodes = *nodes, &kernels = c.floats](ProgramState& state) {
                  return FusedDepthwise::make(graph, nodes, kernels, state);
                }};
}

bool has_bytes(const Choosing& c, size_t i) {
  return c.graph.values[c.node(i).inputs[0]].type == DataType::kQint8;
}

// Of 8-bit integers; there are no kernels on some CPUs.
Found int8_depthwise(const Choosing& c, size_t i, const char** rule) {
  const Int8DepthwiseKernels* kernels = int8_depthwise_kernels();
  if (!has_bytes(c, i) || kernels == nullptr) return {};
  if ((*rule = int8_depthwise_rule(c.graph, c.node(i))) != nullptr) return {};
  return Fusion{{i}, [&graph = c.graph, &node = c.node(i), kernels](ProgramState& state) {
                  return Int8Depthwise::make(graph, node, *kernels, state);
                }};
}

Found int8_winograd(const Choosing& c, size_t i, const char** rule) {
  const Int8WinogradKernels* kernels = int8_winograd_kernels();
  if (!has_bytes(c, i) || kernels == nullptr) return {};
  if ((*rule = int8_winograd_rule(c.graph, c.shapes, c.node(i))) != nullptr) return {};
  return Fusion{{i}, [&graph = c.graph, &node = c.node(i), kernels](ProgramState& state) {
                  return Int8Winograd::make(graph, node, *kernels, state);
                }};
}

Found int8_convolution(const Choosing& c, size_t i, const char** rule) {
  const Int8Kernels* kernels = int8_kernels();
  if (!has_bytes(c, i) || kernels == nullptr) return {};
  if ((*rule = int8_convolution_rule(c.graph, c.shapes, c.node(i), *kernels)) != nullptr) return {};
  const auto nodes = int8_convolution_nodes(c.graph, c.shapes, c.readers, c.is_taken, i, *kernels);
  return Fusion{nodes.nodes(), [&graph = c.graph, nodes, kernels](ProgramState& state) {
                  return Int8Convolution::make(graph, nodes, *kernels, state);
                }};
}

// Of float32, by the kernel `Step` if it meets `rule_of(nodes)`.
template <typename Step, typename Rule>
Found linear(const Choosing& c, size_t i, const char** rule, Rule rule_of) {
  const auto nodes = linear_nodes(c.graph, c.shapes, c.readers, c.is_taken, i);
  if (!nodes || (*rule = rule_of(*nodes)) != nullptr) return {};
  return Fusion{nodes->nodes,
                [&graph = c.graph, nodes = *nodes, &kernels = c.floats](ProgramState& state) {
                  return Step::make(graph, nodes, kernels, state);
                }};
}

Found weight_only(const Choosing& c, size_t i, const char** rule) {
  if (!has_narrow_weights(c.graph.values[c.node(i).inputs[1]])) return {};
  const auto nodes = linear_nodes_of_any(c.graph, c.shapes, c.readers, c.is_taken, i);
  if (!nodes || (*rule = weight_only_rule(c.graph, *nodes, c.floats)) != nullptr) return {};
  return Fusion{nodes->nodes,
                [&graph = c.graph, nodes = *nodes, &kernels = c.floats](ProgramState& state) {
                  return FusedWeightOnly::make(graph, nodes, kernels, state);
                }};
}

#ifdef EDGEWISE_HAS_KLEIDIAI
Found sme(const Choosing& c, size_t i, const char** rule) {
  const auto nodes = sme_nodes(c.graph, c.shapes, c.readers, c.is_taken, i);
  if (!nodes || (*rule = sme_rule(c.graph, c.shapes, *nodes)) != nullptr) return {};
  return Fusion{nodes->nodes, [&graph = c.graph, nodes = *nodes](ProgramState& state) {
                  return SmeGemm::make(graph, nodes, state);
                }};
}
#endif

Found winograd(const Choosing& c, size_t i, const char** rule) {
  return linear<FusedWinograd>(c, i, rule, [&](const LinearNodes& nodes) {
    return winograd_rule(c.graph, c.shapes, nodes);
  });
}

Found gemm(const Choosing& c, size_t i, const char** rule) {
  return linear<FusedGemm>(c, i, rule, [&](const LinearNodes& nodes) {
    return gemm_rule(c.graph, c.shapes, nodes, c.floats);
  });
}

Found convolution(const Choosing& c, size_t i, const char** rule) {
  return linear<FusedConvolution>(c, i, rule, [&](const LinearNodes& nodes) {
    return convolution_rule(c.graph, c.shapes, nodes, c.floats);
  });
}

Found batch_gemm(const Choosing& c, size_t i, const char** rule) {
  *rule = batch_gemm_rule(c.graph, c.shapes, c.node(i), c.floats);
  if (*rule != nullptr) return {};
  return Fusion{{i}, [&node = c.node(i), &kernels = c.floats](ProgramState& state) {
                  return FusedBatchGemm::make(node, kernels, state);
                }};
}

Found unary(const Choosing& c, size_t i, const char** rule) {
  *rule = unary_rule(c.graph, c.node(i));
  if (*rule != nullptr) return {};
  return Fusion{{i}, [&node = c.node(i), &kernels = c.floats](ProgramState& state) {
                  return FusedUnary::make(node, kernels, state);
                }};
}

Found update(const Choosing& c, size_t i, const char** rule) {
  constexpr size_t kMostSmall = 4096;
  const auto nodes = update_nodes(c.graph, c.shapes, c.readers, c.is_taken, i);
  if (!nodes) return {};
  if (c.shapes[nodes->out].elements() <= kMostSmall) {
    *rule = "more than 4,096 elements";
    return {};
  }
  return Fusion{nodes->nodes,
                [&graph = c.graph, &shapes = c.shapes, nodes = *nodes](ProgramState& state) {
                  return FusedUpdate::make(graph, shapes, nodes, state);
                }};
}

struct KernelRow {
  const char* kernel;
  NodeKind kinds[5];  // of the node that it starts from
  Choose choose;
};

// Tried for all nodes first: they take nodes in front of the one that they start from.
constexpr KernelRow kFirstRows[] = {
    {"Attention", {NodeKind::kSoftmax}, attention},
    {"Normalization", {NodeKind::kReciprocalSquareRoot}, normalization},
};

constexpr KernelRow kRows[] = {
    {"Row GEMM", {NodeKind::kConvert}, row_gemm},
    {"Depthwise convolution", {NodeKind::kConv2d, NodeKind::kDepthwiseConv2d}, depthwise},
    {"Depthwise convolution int8", {NodeKind::kDepthwiseConv2d}, int8_depthwise},
    {"Convolution int8 Winograd", {NodeKind::kConv2d}, int8_winograd},
    {"Convolution int8", {NodeKind::kConv2d, NodeKind::kFullyConnected}, int8_convolution},
    {"Weight-only GEMM", {NodeKind::kFullyConnected}, weight_only},
#ifdef EDGEWISE_HAS_KLEIDIAI
    {"SME GEMM", {NodeKind::kConv2d, NodeKind::kFullyConnected}, sme},
#endif
    {"Convolution Winograd", {NodeKind::kConv2d}, winograd},
    {"GEMM", {NodeKind::kConv2d, NodeKind::kFullyConnected}, gemm},
    {"Convolution", {NodeKind::kConv2d}, convolution},
    {"Batch GEMM", {NodeKind::kBatchMatrixMultiply}, batch_gemm},
    {"Update", {NodeKind::kConcatenate2, NodeKind::kConcatenate3}, update},
    {"Unary",
     {NodeKind::kExp, NodeKind::kSin, NodeKind::kCos, NodeKind::kLog, NodeKind::kSquareRoot},
     unary},
};

// Tried for nodes that are left: others compute it with what is around.
constexpr KernelRow kLastRows[] = {{"Unary", {NodeKind::kReciprocalSquareRoot}, unary}};

void choose(std::span<const KernelRow> rows, Choosing* c, KernelChoice* choice) {
  for (size_t i = 0; i < c->graph.nodes.size(); ++i) {
    for (const KernelRow& row : rows) {
      if (c->is_taken[i]) break;
      if (std::ranges::find(row.kinds, c->node(i).kind) == std::end(row.kinds)) continue;
      const char* rule = nullptr;
      if (Found found = row.choose(*c, i, &rule)) {
        for (size_t node : found->nodes) c->is_taken[node] = true;
        choice->fusions.push_back(std::move(*found));
      } else if (rule != nullptr) {
        choice->refused[i].push_back({row.kernel, rule});
      }
    }
  }
}

}  // namespace

KernelChoice choose_kernels(const Graph& graph, const std::vector<Shape>& shapes,
                            const FloatKernels* kernels) {
  KernelChoice choice;
  choice.refused.resize(graph.nodes.size());
  std::vector<bool> is_taken(graph.nodes.size());
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const GraphNode& node = graph.nodes[i];
    if (!is_bfloat16_conversion(graph, node)) continue;
    // XNNPACK has none.
    is_taken[i] = true;
    choice.fusions.push_back({{i}, [&graph, &node](ProgramState& state) {
                                return Bfloat16Conversion::make(graph, node, state);
                              }});
  }
  if (kernels == nullptr) return choice;
  Choosing c{graph, shapes, Readers(graph), *kernels, std::move(is_taken)};
  choose(kFirstRows, &c, &choice);
  choose(kRows, &c, &choice);
  for (std::vector<size_t>& group : elementwise_groups(graph, shapes, c.is_taken)) {
    for (size_t node : group) c.is_taken[node] = true;
    choice.fusions.push_back(
        {group, [&graph, group](ProgramState&) { return ElementwiseFusion::make(graph, group); }});
  }
  choose(kLastRows, &c, &choice);
  return choice;
}

}  // namespace edgewise::xnnpack
