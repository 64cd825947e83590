#include "backends/xnnpack/executor/fused_attention.h"

#include <algorithm>
#include <limits>

#include "backends/xnnpack/executor/panels.h"
#include "backends/xnnpack/executor/parallel.h"

namespace edgewise::xnnpack {
namespace {

// Multiplications of an attention that is faster here than in XNNPACK.
constexpr size_t kLeastWork = size_t{1} << 22;
// Blocks of queries for which it is worth it to copy the values.
constexpr size_t kBlocksPerCopy = 8;

Heads heads_of(const HeadsValue& value, const std::vector<Shape>& shapes) {
  const Shape& shape = shapes[value.value];
  const auto size = [&](size_t axis) { return axis == HeadsValue::kNoAxis ? 1 : shape[axis]; };
  const auto stride = [&](size_t axis) {
    return axis == HeadsValue::kNoAxis ? 0 : shape.elements() / shape.leading(axis + 1);
  };
  return {.batch = size(value.batch_axis),
          .heads = size(value.head_axis),
          .tokens = size(value.token_axis),
          .depth = size(value.depth_axis),
          .batch_stride = stride(value.batch_axis),
          .head_stride = stride(value.head_axis),
          .token_stride = stride(value.token_axis),
          .depth_stride = stride(value.depth_axis)};
}

// Batch matrix products may broadcast a factor; this kernel does not.
bool is_plain(const std::vector<Shape>& shapes, const AttentionNodes& nodes) {
  const Heads queries = heads_of(nodes.queries, shapes);
  const Heads keys = heads_of(nodes.keys, shapes);
  const Heads values = heads_of(nodes.values, shapes);
  return keys.batch == queries.batch && values.batch == queries.batch &&
         keys.heads == queries.heads && values.heads == queries.heads;
}

// Strides of a mask that is added to scores of batch x heads x tokens x `keys`: 0 where one number
// is for all. Nothing if one is for all keys of a query, or the sum has other sizes than the
// scores.
std::optional<Heads> mask_strides(const Shape& mask, const Heads& queries, size_t keys) {
  const size_t sizes[] = {queries.batch, queries.heads, queries.tokens, keys};
  constexpr size_t kAxes = std::size(sizes);
  size_t strides[kAxes] = {};
  size_t stride = 1;
  for (size_t axis = mask.rank; axis-- > 0;) {
    const size_t from_last = mask.rank - 1 - axis;
    const size_t size = from_last < kAxes ? sizes[kAxes - 1 - from_last] : 1;
    if (mask[axis] != size && mask[axis] != 1) return {};
    if (from_last < kAxes && mask[axis] == size) strides[kAxes - 1 - from_last] = stride;
    stride *= mask[axis];
  }
  if (strides[kAxes - 1] == 0) return {};
  return Heads{.batch_stride = strides[0], .head_stride = strides[1], .token_stride = strides[2]};
}

struct Columns {
  size_t first = 0, end = 0;
};

// Columns in front of which, and behind which, a mask hides all from `rows` queries: its numbers
// there are so low that no score makes up for it. All `count` of them, if it hides all from one of
// the queries: then its scores decide.
Columns seen_columns(const float* mask, size_t stride, size_t rows, size_t count) {
  constexpr float kHides = std::numeric_limits<float>::lowest() / 2;
  Columns seen{count, 0};
  for (size_t i = 0; i < (stride == 0 ? 1 : rows); ++i) {
    const float* row = mask + i * stride;
    size_t first = 0, end = count;
    while (first < count && row[first] <= kHides) ++first;
    if (first == count) return {0, count};
    while (end > seen.end && row[end - 1] <= kHides) --end;
    seen = {std::min(seen.first, first), std::max(seen.end, end)};
  }
  return seen;
}

}  // namespace

const char* attention_rule(const std::vector<Shape>& shapes, const AttentionNodes& nodes,
                           const FloatKernels& kernels) {
  if (!is_plain(shapes, nodes)) return "as many keys and values as queries, of each head";
  const Heads queries = heads_of(nodes.queries, shapes);
  const Heads keys = heads_of(nodes.keys, shapes);
  const Heads values = heads_of(nodes.values, shapes);
  const size_t work =
      queries.batch * queries.heads * queries.tokens * keys.tokens * (queries.depth + values.depth);
  if (work < kLeastWork) return "4 million products or more";
  if (nodes.mask != kNone && !mask_strides(shapes[nodes.mask], queries, keys.tokens)) {
    return "a mask with a number for each key";
  }
  if (queries.tokens < kernels.rows) return "as many queries as the kernel computes at once";
  // Whole panels of values are read.
  return values.depth % kernels.columns == 0 ? nullptr : "a depth that fills the kernel's panels";
}

bool FusedAttention::can_take(const std::vector<Shape>& shapes) const {
  if (!is_plain(shapes, nodes_)) return false;
  return nodes_.mask == kNone || mask_strides(shapes[nodes_.mask], heads_of(nodes_.queries, shapes),
                                              heads_of(nodes_.keys, shapes).tokens);
}

Result<std::unique_ptr<Step>> FusedAttention::make(const Graph& graph, const AttentionNodes& nodes,
                                                   const FloatKernels& kernels,
                                                   ProgramState& state) {
  const bool is_constant = nodes.mask != kNone && graph.values[nodes.mask].is_constant();
  std::unique_ptr<FusedAttention> step(new FusedAttention(nodes, is_constant, kernels, state));
  if (is_constant) {
    auto constant = ConstantData::make(graph, {&nodes.mask, 1});
    if (!constant.ok()) return constant.status();
    step->constant_mask_ = std::move(*constant);
    step->mask_ = static_cast<const float*>(step->constant_mask_.addresses[0]);
  }
  return std::unique_ptr<Step>(std::move(step));
}

Status FusedAttention::reshape(const std::vector<Shape>& shapes) {
  query_ = heads_of(nodes_.queries, shapes);
  key_ = heads_of(nodes_.keys, shapes);
  value_ = heads_of(nodes_.values, shapes);
  result_ = heads_of(nodes_.output, shapes);
  if (nodes_.mask != kNone) {
    mask_strides_ = mask_strides(shapes[nodes_.mask], query_, key_.tokens).value_or(Heads{});
  }
  return {};
}

// Keys of one head, transposed, and its values, both panel by panel; scores of a block of queries,
// and what it results in.
size_t FusedAttention::floats_per_thread() const {
  return padded_columns(kernels_, key_.tokens) * (query_.depth + kernels_.rows) +
         (key_.tokens + kernels_.rows) * value_.depth;
}

size_t FusedAttention::thread_scratch_bytes() const { return floats_per_thread() * sizeof(float); }

Status FusedAttention::set_pointers(std::span<void* const> addresses, const Scratch& scratch) {
  queries_ = static_cast<const float*>(addresses[nodes_.queries.value]);
  keys_ = static_cast<const float*>(addresses[nodes_.keys.value]);
  values_ = static_cast<const float*>(addresses[nodes_.values.value]);
  output_ = static_cast<float*>(addresses[nodes_.output.value]);
  if (nodes_.mask != kNone && constant_mask_.addresses.empty()) {
    mask_ = static_cast<const float*>(addresses[nodes_.mask]);
  }
  scratch_ = scratch;
  return {};
}

// `keys`: panels of depth x tokens.
void FusedAttention::run_rows(const float* queries, size_t rows, const float* keys,
                              const ValuePanels& values, const float* mask, float* scores,
                              float* output) const {
  static constexpr float kNoBias[64] = {};  // of a panel's columns, of which no CPU has as many
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const size_t width = padded_columns(kernels_, key_.tokens);
  Columns seen{0, key_.tokens};
  Finish finish{.bias = kNoBias, .min = -kInfinity, .max = kInfinity};
  if (mask != nullptr) {
    seen = seen_columns(mask, mask_strides_.token_stride, rows, key_.tokens);
    seen.first -= seen.first % kernels_.columns;
    finish.residual_stride = mask_strides_.token_stride;
  }
  for (size_t first = seen.first; first < seen.end; first += kernels_.columns) {
    if (mask != nullptr) finish.residual = mask + first;
    kernels_.multiply({.rows = rows,
                       .depth = query_.depth,
                       .a = queries,
                       .a_stride = query_.token_stride,
                       .panel = keys + first * query_.depth,
                       .panel_stride = kernels_.columns,
                       .columns = std::min(kernels_.columns, key_.tokens - first),
                       .c = scores + first,
                       .c_stride = width},
                      mask == nullptr ? nullptr : &finish);
  }
  constexpr size_t kMostRows = 16;
  float sums[kMostRows];
  kernels_.exponentials(scores + seen.first, width, rows, seen.end - seen.first, 1, sums);
  float* mixed = scores + kernels_.rows * width;
  const float* first_values = values.first + seen.first * values.token_stride;
  for (size_t first = 0; first < value_.depth; first += kernels_.columns) {
    kernels_.multiply({.rows = rows,
                       .depth = seen.end - seen.first,
                       .a = scores + seen.first,
                       .a_stride = width,
                       .panel = first_values + first * values.column_stride,
                       .panel_stride = values.token_stride,
                       .columns = kernels_.columns,
                       .c = mixed + first,
                       .c_stride = value_.depth},
                      nullptr);
  }
  for (size_t i = 0; i < rows; ++i) {
    const float scale = 1 / sums[i];
    const float* from = mixed + i * value_.depth;
    float* to = output + i * result_.token_stride;
    for (size_t k = 0; k < value_.depth; ++k) to[k] = from[k] * scale;
  }
}

void FusedAttention::run_head(size_t item, size_t head, size_t from, size_t to,
                              float* scratch) const {
  const size_t width = padded_columns(kernels_, key_.tokens);
  float* keys = scratch;
  float* packed = keys + query_.depth * width;
  float* scores = packed + value_.depth * key_.tokens;
  // Where they lie, tokens are kilobytes apart: each in a page of its own, and in few sets of a
  // cache.
  pack_panels(kernels_, keys_ + key_.at(item, head, 0), query_.depth, key_.tokens,
              key_.depth_stride, key_.token_stride, keys, nullptr);
  const size_t blocks = divide_up(to - from, kernels_.rows);
  ValuePanels values{values_ + value_.at(item, head, 0), 1, value_.token_stride};
  if (blocks >= kBlocksPerCopy) {
    pack_panels(kernels_, values.first, key_.tokens, value_.depth, value_.token_stride, 1, packed,
                nullptr);
    values = {packed, key_.tokens, kernels_.columns};
  }
  for (size_t block = 0; block < blocks; ++block) {
    const size_t row = from + part_start(to - from, blocks, block);
    const size_t end = from + part_start(to - from, blocks, block + 1);
    run_rows(queries_ + query_.at(item, head, row), end - row, keys, values,
             mask_ == nullptr ? nullptr : mask_ + mask_strides_.at(item, head, row), scores,
             output_ + result_.at(item, head, row));
  }
}

Status FusedAttention::run() {
  const size_t heads = query_.batch * query_.heads;
  // Each part transposes the keys again.
  const size_t parts =
      parts_of_items(heads, threads_of(threads_), divide_up(query_.tokens, kernels_.rows));
  parallel_for(threads_, heads * parts, [&](size_t index, size_t thread) {
    const size_t head = index / parts;
    run_head(
        head / query_.heads, head % query_.heads, part_start(query_.tokens, parts, index % parts),
        part_start(query_.tokens, parts, index % parts + 1), scratch_.of_thread<float>(thread));
  });
  return {};
}

}  // namespace edgewise::xnnpack
