#include "backends/xnnpack/shapes.h"

#include <algorithm>
#include <array>

#include "core/checked.h"

namespace edgewise::xnnpack {
namespace {

#define SHAPE_ERROR(...) node_error(Code::kInvalidProgram, node, __VA_ARGS__)

// Sizes as if `shape` had `rank` dimensions, with ones in front.
Shape padded_to(const Shape& shape, size_t rank) {
  Shape result;
  result.rank = rank;
  std::fill_n(result.dims.begin(), rank, size_t{1});
  std::copy_n(shape.dims.begin(), shape.rank, result.dims.begin() + (rank - shape.rank));
  return result;
}

// Broadcasts the first `count` dimensions of two shapes of the same rank.
bool broadcast(const Shape& a, const Shape& b, size_t count, Shape* out) {
  for (size_t i = 0; i < count; ++i) {
    if (a[i] != b[i] && a[i] != 1 && b[i] != 1) return false;
    (*out)[i] = a[i] == 1 ? b[i] : a[i];
  }
  return true;
}

Status infer_binary(const GraphNode& node, const Shape& a, const Shape& b, Shape* out) {
  out->rank = std::max(a.rank, b.rank);
  if (broadcast(padded_to(a, out->rank), padded_to(b, out->rank), out->rank, out)) return {};
  return SHAPE_ERROR("its inputs' shapes must go together; got %s and %s", a.text().c_str(),
                     b.text().c_str());
}

Status infer_fully_connected(const Graph& graph, const GraphNode& node,
                             const std::vector<Shape>& shapes, Shape* out) {
  const Shape& input = shapes[node.inputs[0]];
  const Shape& filter = shapes[node.inputs[1]];
  if (filter.rank != 2 || input.rank == 0) {
    return SHAPE_ERROR("its filter must have two dimensions, its input at least one; got %s, %s",
                       filter.text().c_str(), input.text().c_str());
  }
  const bool transposed = (node.flags & XNN_FLAG_TRANSPOSE_WEIGHTS) != 0;
  const size_t inputs = filter[transposed ? 0 : 1];
  const size_t outputs = filter[transposed ? 1 : 0];
  const bool flatten = (node.flags & XNN_FLAG_TENSORFLOW_RESHAPE_2D) != 0;
  if (inputs == 0 || outputs == 0 ||
      (flatten ? input.elements() % inputs : input.last() - inputs) != 0) {
    return SHAPE_ERROR("its input's last size must be its filter's %zu; got %s", inputs,
                       input.text().c_str());
  }
  if (node.inputs[2] != kNone && shapes[node.inputs[2]].elements() != outputs) {
    return SHAPE_ERROR("its bias must have %zu elements; got %s", outputs,
                       shapes[node.inputs[2]].text().c_str());
  }
  // One set of quantization parameters for each row.
  const GraphValue& value = graph.values[node.inputs[0]];
  if (value.type == DataType::kQdint8 &&
      input.leading(input.rank - value.nonbatch_dims) != input.elements() / inputs) {
    return SHAPE_ERROR("its input must be quantized row by row; got %s with num_nonbatch_dims %u",
                       input.text().c_str(), value.nonbatch_dims);
  }
  *out = input;
  if (flatten) {
    out->rank = 2;
    (*out)[0] = input.elements() / inputs;
  }
  (*out)[out->rank - 1] = outputs;
  return {};
}

Status infer_batch_mat_mul(const GraphNode& node, const Shape& a, const Shape& b, Shape* out) {
  if (a.rank < 2 || b.rank < 2) {
    return SHAPE_ERROR("its inputs must have two dimensions or more; got %s and %s",
                       a.text().c_str(), b.text().c_str());
  }
  const size_t rank = std::max(a.rank, b.rank);
  const Shape left = padded_to(a, rank);
  const Shape right = padded_to(b, rank);
  const bool transposed = (node.flags & XNN_FLAG_TRANSPOSE_B) != 0;
  const size_t inner = right[transposed ? rank - 1 : rank - 2];
  out->rank = rank;
  if (left[rank - 1] != inner || !broadcast(left, right, rank - 2, out)) {
    return SHAPE_ERROR("its inputs' shapes must go together; got %s and %s%s", a.text().c_str(),
                       b.text().c_str(), transposed ? ", transposed" : "");
  }
  (*out)[rank - 2] = left[rank - 2];
  (*out)[rank - 1] = right[transposed ? rank - 2 : rank - 1];
  return {};
}

Status infer_transpose(const GraphNode& node, const Shape& input, Shape* out) {
  std::array<bool, kMaxRank> is_used{};
  bool is_permutation = node.list.size() == input.rank && input.rank > 0;
  out->rank = input.rank;
  for (size_t i = 0; is_permutation && i < input.rank; ++i) {
    const uint32_t from = node.list[i];
    is_permutation = from < input.rank && !is_used[from];
    if (!is_permutation) break;
    is_used[from] = true;
    (*out)[i] = input[from];
  }
  if (is_permutation) return {};
  return SHAPE_ERROR("it must permute the dimensions of %s", input.text().c_str());
}

Status infer_reshape(const GraphNode& node, const Shape& input, Shape* out) {
  const size_t elements = input.elements();
  size_t known = 1;
  size_t open = kMaxRank;
  out->rank = node.list.size();
  for (size_t i = 0; i < out->rank; ++i) {
    (*out)[i] = node.list[i];
    if (node.list[i] != 0) {
      if (!checked_mul(known, size_t{node.list[i]}, &known)) known = kMaxElements + 1;
      if (known > kMaxElements) break;
    } else if (open == kMaxRank) {
      open = i;
    } else {
      return SHAPE_ERROR("only one of its sizes may be open (0); got %s", out->text().c_str());
    }
  }
  const bool is_exact = open == kMaxRank ? known == elements : elements % known == 0;
  if (known > kMaxElements || !is_exact) {
    return SHAPE_ERROR("its shape must have %zu elements, those of %s; got %s", elements,
                       input.text().c_str(), out->text().c_str());
  }
  if (open != kMaxRank) (*out)[open] = elements / known;
  return {};
}

Status infer_slice(const GraphNode& node, const Shape& input, Shape* out) {
  if (input.rank == 0 || node.list.size() != input.rank || node.list2.size() != input.rank) {
    return SHAPE_ERROR("it must have %zu offsets and sizes, at least 1; got %zu and %zu",
                       input.rank, node.list.size(), node.list2.size());
  }
  out->rank = input.rank;
  for (size_t i = 0; i < input.rank; ++i) {
    const size_t offset = node.list[i];
    const size_t size = node.list2[i] == 0 ? input[i] : node.list2[i];
    if (!in_range(offset, size, input[i])) {
      return SHAPE_ERROR("it must stay inside %s; got offset %zu and size %zu in dimension %zu",
                         input.text().c_str(), offset, size, i);
    }
    (*out)[i] = size;
  }
  return {};
}

Status infer_pad(const GraphNode& node, const Shape& input, Shape* out) {
  if (input.rank == 0 || node.list.size() != input.rank || node.list2.size() != input.rank) {
    return SHAPE_ERROR("it must have %zu paddings before and after, at least 1; got %zu and %zu",
                       input.rank, node.list.size(), node.list2.size());
  }
  out->rank = input.rank;
  for (size_t i = 0; i < input.rank; ++i) {
    const uint64_t size = uint64_t{input[i]} + node.list[i] + node.list2[i];
    (*out)[i] = static_cast<size_t>(std::min<uint64_t>(size, kMaxDim));  // which does not fit
  }
  return {};
}

Status infer_concatenation(const GraphNode& node, const std::vector<Shape>& shapes, Shape* out) {
  const Shape& first = shapes[node.inputs[0]];
  const auto rank = static_cast<int64_t>(first.rank);
  const int64_t axis = node.axis < 0 ? node.axis + rank : node.axis;
  if (axis < 0 || axis >= rank) {
    return SHAPE_ERROR("its axis must be one of %s; got %d", first.text().c_str(), node.axis);
  }
  const auto along = static_cast<size_t>(axis);
  *out = first;
  (*out)[along] = 0;
  for (uint32_t input : node.inputs) {
    Shape rest = shapes[input];
    const size_t size = rest.rank == first.rank ? rest[along] : 0;
    rest[along] = first[along];
    if (!(rest == first)) {
      return SHAPE_ERROR("its inputs must agree but in dimension %zu; got %s and %s", along,
                         first.text().c_str(), shapes[input].text().c_str());
    }
    (*out)[along] += size;
  }
  return {};
}

Status infer_attention(const GraphNode& node, const std::vector<Shape>& shapes, Shape* out) {
  const Shape& query = shapes[node.inputs[0]];
  const Shape& key = shapes[node.inputs[1]];
  const Shape& value = shapes[node.inputs[2]];
  const Shape& scale = shapes[node.inputs[3]];
  const Shape& mask = shapes[node.inputs[4]];
  const size_t rank = query.rank;
  bool fits = rank >= 3 && (key.rank == rank || key.rank + 1 == rank) && value.rank == key.rank &&
              scale.rank == 1 && mask.rank == 2;
  // Batches, and heads if keys have them, are the query's.
  for (size_t i = 0; fits && i + 2 < key.rank; ++i) {
    fits = key[i] == query[i] && value[i] == query[i];
  }
  fits = fits && key.last() == query.last() && key[key.rank - 2] == value[key.rank - 2] &&
         scale[0] == query.last() && mask[0] == query[rank - 2] && mask[1] == key[key.rank - 2];
  if (!fits) {
    return SHAPE_ERROR("its inputs' shapes must go together; got %s, %s, %s, %s, %s",
                       query.text().c_str(), key.text().c_str(), value.text().c_str(),
                       scale.text().c_str(), mask.text().c_str());
  }
  *out = query;
  (*out)[rank - 1] = value.last();
  return {};
}

Status infer_global_pool(const GraphNode& node, const Shape& input, Shape* out) {
  if (input.rank < 3) {
    return SHAPE_ERROR("its input must have three dimensions or more; got %s",
                       input.text().c_str());
  }
  *out = input;
  if ((node.flags & XNN_FLAG_KEEP_DIMS) != 0) {
    (*out)[input.rank - 3] = (*out)[input.rank - 2] = 1;
  } else {
    (*out)[input.rank - 3] = input.last();
    out->rank -= 2;
  }
  return {};
}

Status infer_unary(const Graph& graph, const GraphNode& node, const Shape& input, Shape* out) {
  const GraphValue& result = graph.values[node.outputs[0]];
  if (result.type == DataType::kQdint8 && result.nonbatch_dims > input.rank) {
    return SHAPE_ERROR("num_nonbatch_dims must be at most the rank of %s; got %u",
                       input.text().c_str(), result.nonbatch_dims);
  }
  if (node.kind == NodeKind::kSoftmax && input.rank == 0) {
    return SHAPE_ERROR("its input must have a dimension; got none");
  }
  *out = input;
  return {};
}

Status infer_node(const Graph& graph, const GraphNode& node, const std::vector<Shape>& shapes,
                  Shape* out) {
  const Shape& input = shapes[node.inputs[0]];
  if (node.is_windowed() || node.kind == NodeKind::kStaticResizeBilinear2D) {
    return infer_spatial(graph, node, shapes, out);
  }
  if (node.is_concatenation()) return infer_concatenation(node, shapes, out);
  if (is_binary(node.kind)) return infer_binary(node, input, shapes[node.inputs[1]], out);
  switch (node.kind) {
    case NodeKind::kFullyConnected:
      return infer_fully_connected(graph, node, shapes, out);
    case NodeKind::kBatchMatrixMultiply:
      return infer_batch_mat_mul(node, input, shapes[node.inputs[1]], out);
    case NodeKind::kStaticTranspose:
      return infer_transpose(node, input, out);
    case NodeKind::kStaticReshape:
      return infer_reshape(node, input, out);
    case NodeKind::kStaticSlice:
      return infer_slice(node, input, out);
    case NodeKind::kStaticConstantPad:
      return infer_pad(node, input, out);
    case NodeKind::kScaledDotProductAttention:
      return infer_attention(node, shapes, out);
    case NodeKind::kGlobalAvgPooling2d:
      return infer_global_pool(node, input, out);
    default:
      return infer_unary(graph, node, input, out);
  }
}

}  // namespace

Status infer_shapes(const Graph& graph, std::vector<Shape>* shapes) {
  for (const GraphNode& node : graph.nodes) {
    Shape out;
    if (auto status = infer_node(graph, node, *shapes, &out); !status.ok()) return status;
    if (!out.fits()) {
      return SHAPE_ERROR("its result must have sizes below %zu and at most %zu elements; got %s",
                         kMaxDim, kMaxElements, out.text().c_str());
    }
    for (uint32_t output : node.outputs) (*shapes)[output] = out;
  }
  return {};
}

}  // namespace edgewise::xnnpack
