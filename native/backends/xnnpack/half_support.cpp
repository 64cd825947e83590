#include "backends/xnnpack/half_support.h"

#include <array>
#include <atomic>

#include "backends/xnnpack/build.h"
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

struct RuntimeDelete {
  void operator()(xnn_runtime_t runtime) const { xnn_delete_runtime(runtime); }
};
using RuntimePtr = std::unique_ptr<xnn_runtime, RuntimeDelete>;

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

// Null if XNNPACK has no kernel for it.
RuntimePtr make_runtime(const Graph& graph) {
  const std::vector<Shape> shapes = graph.serialized_shapes();
  std::vector<const void*> data(graph.values.size());
  if (data.size() > 2) data[2] = kOnes.data();
  xnn_subgraph_t raw = nullptr;
  if (initialize_xnnpack() != xnn_status_success) return nullptr;
  if (xnn_create_subgraph(graph.externals, 0, &raw) != xnn_status_success) return nullptr;
  const SubgraphPtr subgraph(raw);
  XnnIds ids;
  if (!define_values(graph, shapes, data, raw, &ids).ok()) return nullptr;
  if (!define_nodes(graph, shapes, ids, raw).ok()) return nullptr;
  xnn_runtime_t runtime = nullptr;
  if (xnn_create_runtime_v2(raw, nullptr, 0, &runtime) != xnn_status_success) return nullptr;
  return RuntimePtr(runtime);
}

// For CPUs without float16 arithmetic, XNNPACK has kernels that convert each number on its way
// and add in float32: slower by far than to compute in float32. They are told by a sum that goes
// over what float16 can count: 2048 + 1 - 2048.
bool try_arithmetic() {
  const RuntimePtr runtime = make_runtime(one_node(NodeKind::kFullyConnected));
  if (runtime == nullptr) return false;
  std::array<uint16_t, kElements + XNN_EXTRA_BYTES> input{};
  std::array<uint16_t, kElements + XNN_EXTRA_BYTES> output{};
  input[0] = 0x6800;
  input[1] = kOne;
  input[2] = 0xe800;
  const xnn_external_value externals[] = {{0, input.data()}, {1, output.data()}};
  if (xnn_reshape_runtime(runtime.get()) != xnn_status_success) return false;
  if (xnn_setup_runtime_v2(runtime.get(), 2, externals) != xnn_status_success) return false;
  if (xnn_invoke_runtime(runtime.get()) != xnn_status_success) return false;
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
  if (answer == kUnknown) answer = make_runtime(one_node(kind)) != nullptr ? kYes : kNo;
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
