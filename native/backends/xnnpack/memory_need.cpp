#include "backends/xnnpack/memory_need.h"

#include <algorithm>
#include <limits>

#include "platform/process.h"

namespace edgewise::xnnpack {
namespace {

size_t saturating_add(size_t a, size_t b) {
  size_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? std::numeric_limits<size_t>::max() : sum;
}

size_t saturating_mul(size_t a, size_t b) {
  size_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? std::numeric_limits<size_t>::max() : product;
}

// XNNPACK keeps a pointer for each element of the window at each position (or two numbers, when
// it resizes).
size_t table_bytes(const Graph&, const GraphNode& node, const std::vector<Shape>& shapes) {
  const Shape& out = shapes[node.outputs[0]];
  if (node.kind == NodeKind::kStaticResizeBilinear2D) {
    return saturating_mul(out[1] * out[2], 4 * sizeof(void*));
  }
  if (!node.is_windowed()) return 0;
  const size_t window = size_t{node.window.kernel[0]} * node.window.kernel[1];
  if (window == 1) return 0;
  return saturating_mul(saturating_mul(out[1] * out[2], window), sizeof(void*));
}

}  // namespace

size_t memory_need(const Graph& graph, const std::vector<Shape>& shapes) {
  std::vector<size_t> last_reader(graph.values.size());
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    for (uint32_t input : graph.nodes[i].inputs) {
      if (input != kNone) last_reader[input] = i;
    }
  }
  const auto bytes_of = [&](uint32_t i) {
    const GraphValue& value = graph.values[i];
    return value.is_external() || value.is_constant() ? 0 : byte_size(value.type, shapes[i]);
  };
  size_t tables = 0;
  size_t live = 0;
  size_t peak = 0;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const GraphNode& node = graph.nodes[i];
    tables = saturating_add(tables, table_bytes(graph, node, shapes));
    for (uint32_t output : node.outputs) live = saturating_add(live, bytes_of(output));
    peak = std::max(peak, live);
    // An input that a node reads twice is freed once.
    for (size_t k = 0; k < node.inputs.size(); ++k) {
      const uint32_t input = node.inputs[k];
      if (input == kNone || last_reader[input] != i) continue;
      const auto before = node.inputs.begin() + static_cast<std::ptrdiff_t>(k);
      if (std::find(node.inputs.begin(), before, input) != before) continue;
      live -= std::min(live, bytes_of(input));
    }
  }
  return saturating_add(peak, tables);
}

Status check_memory(const Graph& graph, const std::vector<Shape>& shapes, size_t most) {
  const size_t needed = memory_need(graph, shapes);
  if (most != 0 && needed > most) {
    return error(Code::kOutOfMemory,
                 "[xnnpack] max_memory is %zu bytes; a delegate's intermediate results need %zu",
                 most, needed);
  }
  const size_t all = platform::physical_memory();
  if (all == 0) return {};
  // A 32-bit program may have less room than its machine, and sums must fit.
  const size_t available = std::min(all, std::numeric_limits<size_t>::max() / 4);
  if (needed <= available) return {};
  return error(Code::kOutOfMemory,
               "[xnnpack] a delegate must find memory for its intermediate results; got %zu MiB of "
               "%zu MiB; try smaller inputs",
               available >> 20, needed >> 20);
}

}  // namespace edgewise::xnnpack
