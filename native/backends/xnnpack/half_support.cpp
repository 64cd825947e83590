#include "backends/xnnpack/half_support.h"

#include <array>
#include <atomic>

#include "backends/xnnpack/executor/xnnpack_operator.h"
#include "backends/xnnpack/program_state.h"

namespace edgewise::xnnpack {
namespace {

constexpr size_t kChannels = 8;
constexpr size_t kElements = kChannels * kChannels;
constexpr size_t kKinds = 256;
constexpr uint16_t kOne = 0x3c00;

constexpr std::array<uint16_t, kElements> kOnes = [] {
  std::array<uint16_t, kElements> ones{};
  for (uint16_t& one : ones) one = kOne;
  return ones;
}();

// XNNPACK has these on every CPU.
bool is_plain_conversion(const Graph& graph, const GraphNode& node) {
  return node.kind == NodeKind::kConvert && graph.values[node.outputs[0]].type != DataType::kQdint8;
}

bool is_elementwise(NodeKind kind) {
  const bool is_unary = traits_of(kind).unary != xnn_unary_invalid;
  return (is_unary && kind != NodeKind::kConvert) || kind == NodeKind::kSoftmax;
}

GraphValue half_value(uint32_t external_id) {
  GraphValue value;
  value.type = DataType::kFp16;
  value.shape.rank = 2;
  value.shape[0] = value.shape[1] = kChannels;
  value.external_id = external_id;
  return value;
}

// A node of this kind in float16: elementwise, or a product with a matrix of ones.
Graph one_node(NodeKind kind) {
  Graph graph;
  graph.externals = 2;
  graph.values = {half_value(0), half_value(1)};
  graph.values[0].is_input = true;
  graph.values[1].is_output = true;
  GraphNode node;
  node.kind = kind;
  node.number = 1;
  node.inputs = {0};
  node.outputs = {1};
  if (!is_elementwise(kind)) {
    graph.values.push_back(half_value(kNone));
    node.inputs = {0, 2, kNone};
  }
  graph.nodes = {node};
  return graph;
}

// None if XNNPACK has no kernel for it.
std::vector<OperatorCalls> operators_of(const Graph& graph) {
  std::vector<OperatorCalls> calls;
  if (initialize_xnnpack() != xnn_status_success) return calls;
  const std::vector<Shape> shapes = graph.serialized_shapes();
  const std::vector<const void*> constants = {nullptr, kOnes.data(), nullptr};
  const OperatorNode node{graph, graph.nodes[0], shapes, constants, nullptr};
  if (make_operators(node, &calls) != xnn_status_success) calls.clear();
  return calls;
}

// For CPUs without float16 arithmetic, XNNPACK has kernels that convert each number on its way
// and add in float32: slower by far than to compute in float32. They are told by a sum that goes
// over what float16 can count: 2048 + 1 - 2048.
bool try_arithmetic() {
  const Graph graph = one_node(NodeKind::kFullyConnected);
  const std::vector<OperatorCalls> calls = operators_of(graph);
  if (calls.empty()) return false;
  std::array<uint16_t, kElements + XNN_EXTRA_BYTES> input{};
  std::array<uint16_t, kElements + XNN_EXTRA_BYTES> output{};
  input[0] = 0x6800;
  input[1] = kOne;
  input[2] = 0xe800;
  const std::vector<Shape> shapes = graph.serialized_shapes();
  size_t workspace = 0;
  if (calls[0].reshape(calls[0].op.get(), {graph.nodes[0], shapes, nullptr, &workspace}) !=
      xnn_status_success) {
    return false;
  }
  if (calls[0].setup(calls[0].op.get(), {{input.data()}, {output.data()}, {}, {}, {}}) !=
      xnn_status_success) {
    return false;
  }
  if (xnn_run_operator(calls[0].op.get(), nullptr) != xnn_status_success) return false;
  return output[0] != kOne;
}

bool has_arithmetic() {
  static const bool result = try_arithmetic();
  return result;
}

bool has_kernel(NodeKind kind) {
  enum : uint8_t { kUnknown, kNo, kYes };
  static std::array<std::atomic<uint8_t>, kKinds> known{};
  std::atomic<uint8_t>& answer = known[static_cast<size_t>(kind)];
  if (answer == kUnknown) answer = operators_of(one_node(kind)).empty() ? kNo : kYes;
  return answer == kYes;
}

}  // namespace

bool has_half_kernel(const Graph& graph, const GraphNode& node) {
  if (is_plain_conversion(graph, node)) return true;
  // Without kernels for matrix products XNNPACK has no others either: they need the same CPU.
  return has_kernel(is_elementwise(node.kind) ? node.kind : NodeKind::kFullyConnected);
}

bool is_fast_in_half(const Graph& graph, const GraphNode& node) {
  if (is_plain_conversion(graph, node)) return true;
  return has_arithmetic() && has_half_kernel(graph, node);
}

}  // namespace edgewise::xnnpack
