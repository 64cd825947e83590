#include "backends/xnnpack/executor/elementwise_nodes.h"

#include <algorithm>
#include <array>

namespace edgewise::xnnpack {
namespace {

// Of a group that is worth a step.
constexpr size_t kLeastNodes = 3;

using Steps = std::array<size_t, kMaxRank>;

Steps row_major(const Shape& shape) {
  Steps steps{};
  size_t step = 1;
  for (size_t d = shape.rank; d-- > 0; step *= shape[d]) steps[d] = step;
  return steps;
}

// Of an operand whose dimensions are the last ones of `to`, those of size 1 repeated.
Steps broadcast(const Shape& from, const Shape& to) {
  const Steps own = row_major(from);
  Steps steps{};
  for (size_t d = 0; d < from.rank; ++d) {
    if (from[d] != 1) steps[to.rank - from.rank + d] = own[d];
  }
  return steps;
}

// Joins dimensions that go on where the one inside ends; nothing if more than three are left.
std::optional<ElementwiseLoop> loop_over(ElementwiseKind kind, const Shape& shape, const Steps& out,
                                         const Steps& a, const Steps& b) {
  struct Dim {
    size_t count, out, a, b;
  };
  std::vector<Dim> dims;  // from the innermost
  for (size_t d = shape.rank; d-- > 0;) {
    if (shape[d] == 1) continue;
    if (!dims.empty()) {
      Dim& inner = dims.back();
      if (out[d] == inner.out * inner.count && a[d] == inner.a * inner.count &&
          b[d] == inner.b * inner.count) {
        inner.count *= shape[d];
        continue;
      }
    }
    dims.push_back({shape[d], out[d], a[d], b[d]});
  }
  if (dims.empty()) dims.push_back({1, 1, 1, 1});
  if (dims.size() > 3 || dims[0].out != 1 || dims[0].a > 1 || dims[0].b > 1) return {};
  ElementwiseLoop loop{.kind = kind};
  for (size_t i = 0; i < dims.size(); ++i) {
    const size_t at = 2 - i;
    loop.counts[at] = static_cast<uint32_t>(dims[i].count);
    loop.a_steps[at] = static_cast<uint32_t>(dims[i].a);
    loop.b_steps[at] = static_cast<uint32_t>(dims[i].b);
    if (at < 2) loop.out_steps[at] = static_cast<uint32_t>(dims[i].out);
  }
  return loop;
}

std::optional<ElementwiseKind> kind_of(NodeKind kind) {
  switch (kind) {
    case NodeKind::kStaticReshape:
    case NodeKind::kStaticSlice:
    case NodeKind::kConcatenate2:
    case NodeKind::kConcatenate3:
    case NodeKind::kConcatenate4:
    case NodeKind::kConcatenate5:
      return ElementwiseKind::kCopy;
    case NodeKind::kNegate:
      return ElementwiseKind::kNegate;
    case NodeKind::kSquare:
      return ElementwiseKind::kSquare;
    case NodeKind::kReciprocalSquareRoot:
      return ElementwiseKind::kReciprocalSquareRoot;
    case NodeKind::kSigmoid:
      return ElementwiseKind::kSigmoid;
    case NodeKind::kAdd:
      return ElementwiseKind::kAdd;
    case NodeKind::kSubtract:
      return ElementwiseKind::kSubtract;
    case NodeKind::kMultiply:
      return ElementwiseKind::kMultiply;
    case NodeKind::kFullyConnected:
      return ElementwiseKind::kDot;
    default:
      return {};
  }
}

// In fp32, and so in the file if it is constant.
bool is_float(const Graph& graph, uint32_t value) {
  return graph.values[value].type == DataType::kFp32 && !graph.values[value].is_converted();
}

bool has_loops(const Graph& graph, const GraphNode& node) {
  const std::optional<ElementwiseKind> kind = kind_of(node.kind);
  const auto is_fit = [&](uint32_t value) { return value == kNone || is_float(graph, value); };
  if (!kind || node.flags != 0 || node.is_bounded() || !is_float(graph, node.outputs[0]) ||
      !std::ranges::all_of(node.inputs, is_fit)) {
    return false;
  }
  // A sum of products: means are written so.
  return *kind != ElementwiseKind::kDot || graph.values[node.inputs[1]].shape[0] == 1;
}

bool is_few(const std::vector<Shape>& shapes, const GraphNode& node) {
  return std::max(shapes[node.inputs[0]].elements(), shapes[node.outputs[0]].elements()) <=
         kMostElementwise;
}

struct Maker {
  const std::vector<Shape>& shapes;
  const GraphNode& node;
  ElementwiseKind kind;
  std::vector<NodeLoop> loops = {};

  const Shape& out() const { return shapes[node.outputs[0]]; }

  bool add(const Shape& shape, const Steps& out_steps, uint32_t a, const Steps& a_steps,
           uint32_t b = kNone, const Steps& b_steps = {}) {
    const auto loop = loop_over(kind, shape, out_steps, a_steps, b_steps);
    if (!loop) return false;
    loops.push_back({.loop = *loop, .a = a, .b = b, .out = node.outputs[0]});
    return true;
  }
  bool make_slice() {
    const uint32_t input = node.inputs[0];
    const Steps steps = row_major(shapes[input]);
    if (!add(out(), row_major(out()), input, steps)) return false;
    for (size_t d = 0; d < out().rank; ++d) loops[0].a_offset += node.list[d] * steps[d];
    return true;
  }
  bool make_concatenation() {
    const Steps steps = row_major(out());
    const size_t axis = node.axis_in(out().rank);
    size_t offset = 0;
    for (uint32_t input : node.inputs) {
      if (!add(shapes[input], steps, input, row_major(shapes[input]))) return false;
      loops.back().out_offset = offset;
      offset += shapes[input][axis] * steps[axis];
    }
    return true;
  }
  bool make_dot() {
    const Shape& input = shapes[node.inputs[0]];
    const auto depth = static_cast<uint32_t>(input.last());
    ElementwiseLoop loop{.kind = kind,
                         .counts = {1, static_cast<uint32_t>(input.elements() / depth), depth},
                         .a_steps = {0, depth, 1},
                         .b_steps = {0, 0, 1},
                         .out_steps = {0, 1}};
    loops.push_back({.loop = loop,
                     .a = node.inputs[0],
                     .b = node.inputs[1],
                     .c = node.inputs[2],
                     .out = node.outputs[0]});
    return true;
  }
  bool make() {
    if (kind == ElementwiseKind::kDot) return make_dot();
    if (node.kind == NodeKind::kStaticSlice) return make_slice();
    if (node.is_concatenation()) return make_concatenation();
    const Steps steps = row_major(out());
    if (node.inputs.size() == 1) return add(out(), steps, node.inputs[0], steps);
    const auto of = [&](size_t i) { return broadcast(shapes[node.inputs[i]], out()); };
    return add(out(), steps, node.inputs[0], of(0), node.inputs[1], of(1));
  }
};

}  // namespace

std::optional<std::vector<NodeLoop>> elementwise_loops(const Graph& graph,
                                                       const std::vector<Shape>& shapes,
                                                       const GraphNode& node) {
  if (!has_loops(graph, node) || !is_few(shapes, node)) return {};
  Maker maker{shapes, node, *kind_of(node.kind)};
  if (!maker.make()) return {};
  return std::move(maker.loops);
}

bool is_small(const Graph& graph, const std::vector<Shape>& shapes) {
  bool is_any = false;
  for (const GraphNode& node : graph.nodes) {
    if (!has_loops(graph, node)) continue;
    if (!is_few(shapes, node)) return false;
    is_any = true;
  }
  return is_any;
}

std::vector<std::vector<size_t>> elementwise_groups(const Graph& graph,
                                                    const std::vector<Shape>& shapes,
                                                    const std::vector<bool>& is_taken) {
  std::vector<std::vector<size_t>> groups;
  if (!is_small(graph, shapes)) return groups;
  std::vector<size_t> group;
  std::vector<bool> is_written(graph.values.size());  // by the group
  const auto end_group = [&] {
    if (group.size() >= kLeastNodes) groups.push_back(group);
    group.clear();
    is_written.assign(graph.values.size(), false);
  };
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const GraphNode& node = graph.nodes[i];
    if (!is_taken[i] && elementwise_loops(graph, shapes, node)) {
      group.push_back(i);
      is_written[node.outputs[0]] = true;
    } else if (std::ranges::any_of(node.inputs, [&](uint32_t input) {
                 return input != kNone && is_written[input];
               })) {
      end_group();  // it cannot wait
    }
  }
  end_group();
  return groups;
}

}  // namespace edgewise::xnnpack
