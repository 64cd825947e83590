#include "backends/xnnpack/executor/fused_update.h"

#include <algorithm>
#include <cstring>

#include "backends/xnnpack/executor/parallel.h"

namespace edgewise::xnnpack {
namespace {

// Whether the node is a slice along `axis` alone, from `start` on.
bool is_slice(const GraphNode& node, const Shape& in, const Shape& out, size_t axis, size_t start) {
  if (in.rank != out.rank) return false;
  for (size_t d = 0; d < in.rank; ++d) {
    const size_t offset = node.list[d];
    if (d == axis ? offset != start : offset != 0 || in[d] != out[d]) return false;
  }
  return true;
}

}  // namespace

std::optional<UpdateNodes> update_nodes(const Graph& graph, const std::vector<Shape>& shapes,
                                        const Readers& readers, const std::vector<bool>& is_taken,
                                        size_t node) {
  const GraphNode& join = graph.nodes[node];
  UpdateNodes found;
  found.out = join.outputs[0];
  const Shape& out = shapes[found.out];
  found.axis = join.axis_in(out.rank);
  size_t start = 0;
  for (const uint32_t input : join.inputs) {
    const size_t writer = readers.writer[input];
    const bool is_piece = writer != Readers::kNoNode && !is_taken[writer] &&
                          graph.nodes[writer].kind == NodeKind::kStaticSlice &&
                          readers.sole(graph, input) == node;
    const uint32_t source = is_piece ? graph.nodes[writer].inputs[0] : kNone;
    if (is_piece && !graph.values[source].is_constant() && shapes[source] == out &&
        (found.tensor == kNone || source == found.tensor) &&
        is_slice(graph.nodes[writer], out, shapes[input], found.axis, start)) {
      if (!found.nodes.empty() && found.nodes.back() > writer) return {};
      found.tensor = source;
      found.nodes.push_back(writer);
    } else if (found.part == kNone && !graph.values[input].is_constant()) {
      found.part = input;
      found.start = start;
    } else {
      return {};
    }
    start += shapes[input][found.axis];
  }
  if (found.tensor == kNone || found.part == kNone || found.part == found.tensor) return {};
  found.nodes.push_back(node);
  return found;
}

FusedUpdate::FusedUpdate(const Graph& graph, const std::vector<Shape>& shapes,
                         const UpdateNodes& nodes, ProgramState& state)
    : nodes_(nodes),
      reads_{nodes.tensor, nodes.part},
      writes_{nodes.out},
      element_bytes_(bits_of(graph.values[nodes.out].type) / 8),
      size_(shapes[nodes.tensor][nodes.axis]),
      part_size_(shapes[nodes.part][nodes.axis]),
      threads_(state.threadpool()) {}

Result<std::unique_ptr<Step>> FusedUpdate::make(const Graph& graph,
                                                const std::vector<Shape>& shapes,
                                                const UpdateNodes& nodes, ProgramState& state) {
  return std::unique_ptr<Step>(new FusedUpdate(graph, shapes, nodes, state));
}

bool FusedUpdate::can_take(const std::vector<Shape>& shapes) const {
  return shapes[nodes_.tensor] == shapes[nodes_.out] &&
         shapes[nodes_.tensor][nodes_.axis] == size_ &&
         shapes[nodes_.part][nodes_.axis] == part_size_;
}

Status FusedUpdate::reshape(const std::vector<Shape>& shapes) {
  const Shape& shape = shapes[nodes_.tensor];
  count_ = shape.leading(nodes_.axis);
  row_ = shape.elements() / std::max<size_t>(count_, 1) * element_bytes_;
  const size_t inner = row_ / size_;
  part_row_ = part_size_ * inner;
  offset_ = nodes_.start * inner;
  return {};
}

Status FusedUpdate::set_pointers(std::span<void* const> addresses, const Scratch& /*scratch*/) {
  tensor_ = static_cast<const std::byte*>(addresses[nodes_.tensor]);
  part_ = static_cast<const std::byte*>(addresses[nodes_.part]);
  output_ = static_cast<std::byte*>(addresses[nodes_.out]);
  return {};
}

Status FusedUpdate::run() {
  constexpr size_t kLeastPart = 1 << 16;  // bytes that are worth a thread
  const bool is_in_place = tensor_ == output_;
  const size_t bytes = count_ * (is_in_place ? part_row_ : row_);
  const size_t most = std::min(count_, 4 * threads_of(threads_));
  const size_t parts = std::clamp<size_t>(bytes / kLeastPart, 1, std::max<size_t>(most, 1));
  parallel_for(threads_, parts, [&](size_t index, size_t) {
    const size_t start = part_start(count_, parts, index);
    const size_t end = part_start(count_, parts, index + 1);
    if (!is_in_place) {
      std::memcpy(output_ + start * row_, tensor_ + start * row_, (end - start) * row_);
    }
    for (size_t i = start; i < end; ++i) {
      std::memcpy(output_ + i * row_ + offset_, part_ + i * part_row_, part_row_);
    }
  });
  return {};
}

}  // namespace edgewise::xnnpack
