// ScaledDotProductAttention by XNNPACK, whose later versions have no operator for all of it:
// (query * scale) x key^T + mask, softmax, x value.
#include "backends/xnnpack/executor/xnnpack_operator.h"
#include "core/memory.h"

namespace edgewise::xnnpack {
namespace {

// Batches and heads together, where keys and values may have one head for all.
struct AttentionSizes {
  size_t batch, heads, key_heads, tokens, key_tokens, depth, value_depth;

  explicit AttentionSizes(const OperatorSizes& sizes) {
    const Shape &query = sizes.in(0), &key = sizes.in(1);
    batch = query.leading(query.rank - 3);
    heads = query[query.rank - 3];
    key_heads = key.rank == query.rank ? key[key.rank - 3] : 1;
    tokens = query[query.rank - 2];
    key_tokens = key[key.rank - 2];
    depth = query.last();
    value_depth = sizes.in(2).last();
  }
};

// In the workspace: the scaled queries, the scores, and what an operator needs for itself.
struct Layout {
  size_t element = 0;  // bytes
  size_t scores = 0, own = 0;

  void plan(const AttentionSizes& a) {
    scores = padded_size(a.batch * a.heads * a.tokens * a.depth * element);
    own = scores + padded_size(a.batch * a.heads * a.tokens * a.key_tokens * element);
  }
  static std::byte* base(const OperatorAddresses& to) {
    return static_cast<std::byte*>(to.workspace.data);
  }
};
using LayoutPtr = std::shared_ptr<Layout>;

xnn_status add_binary(const OperatorNode& n, xnn_binary_operator type, const LayoutPtr& layout,
                      std::vector<OperatorCalls>* calls) {
  const OperatorFunctions f = EDGEWISE_XNN_OPERATOR(binary_elementwise_nd);
  const xnn_quantization_params none{};
  const bool is_scale = type == xnn_binary_multiply;
  return add_operator(
      f.name, calls,
      [&](xnn_operator_t* op) {
        return f.create(type, to_xnn(n.out().type), &none, &none, &none, 0, op);
      },
      [=](xnn_operator_t op, const OperatorSizes& sizes) {
        const AttentionSizes a(sizes);
        layout->plan(a);
        *sizes.workspace = layout->own;
        const size_t rows = a.batch * a.heads;
        const size_t queries[] = {rows * a.tokens, a.depth};
        const size_t scores[] = {rows, a.tokens, a.key_tokens};
        return is_scale ? f.reshape(op, 2, queries, 1, queries + 1, sizes.threads)
                        : f.reshape(op, 3, scores, 2, scores + 1, sizes.threads);
      },
      [=](xnn_operator_t op, const OperatorAddresses& to) {
        const Address queries(Layout::base(to)), scores(Layout::base(to) + layout->scores);
        return is_scale ? f.setup(op, to.in[0], to.in[3], queries)
                        : f.setup(op, scores, to.in[4], scores);
      });
}

template <typename Functions>
xnn_status add_softmax(const Functions& f, const LayoutPtr& layout,
                       std::vector<OperatorCalls>* calls) {
  return add_operator(
      f.name, calls, [&](xnn_operator_t* op) { return f.create(0, op); },
      [=](xnn_operator_t op, const OperatorSizes& sizes) {
        const AttentionSizes a(sizes);
        *sizes.workspace = layout->own;
        return f.reshape(op, a.key_tokens, a.key_tokens, a.key_tokens, a.batch * a.heads * a.tokens,
                         sizes.threads);
      },
      [=](xnn_operator_t op, const OperatorAddresses& to) {
        const Address scores(Layout::base(to) + layout->scores);
        return f.setup(op, scores, scores);
      });
}

// Of queries and keys, or of scores and values.
template <typename Functions>
xnn_status add_product(const Functions& f, bool is_scores, const LayoutPtr& layout,
                       std::vector<OperatorCalls>* calls) {
  return add_operator(
      f.name, calls,
      [&](xnn_operator_t* op) { return f.create(is_scores ? XNN_FLAG_TRANSPOSE_B : 0, op); },
      [=](xnn_operator_t op, const OperatorSizes& sizes) {
        const AttentionSizes a(sizes);
        const size_t left[] = {a.batch, a.heads}, right[] = {a.batch, a.key_heads};
        const size_t depth = is_scores ? a.depth : a.key_tokens;
        const size_t columns = is_scores ? a.key_tokens : a.value_depth;
        const xnn_status status =
            call_reshape(f.reshape, op, sizes.workspace, sizes.threads, size_t{2},
                         static_cast<const size_t*>(left), static_cast<const size_t*>(right),
                         a.tokens, depth, columns);
        *sizes.workspace += layout->own;
        return status;
      },
      [=](xnn_operator_t op, const OperatorAddresses& to) {
        std::byte* base = Layout::base(to);
        const Workspace own{base + layout->own};
        const Address scores(base + layout->scores);
        return is_scores ? f.setup(op, own, Address(base), to.in[1], scores)
                         : f.setup(op, own, scores, to.in[2], to.out[0]);
      });
}

template <typename Product, typename Softmax>
xnn_status add_all(const OperatorNode& n, const Product& product, const Softmax& softmax,
                   std::vector<OperatorCalls>* calls) {
  const auto layout = std::make_shared<Layout>();
  layout->element = bits_of(n.out().type) / 8;
  xnn_status status = add_binary(n, xnn_binary_multiply, layout, calls);
  if (status == xnn_status_success) status = add_product(product, true, layout, calls);
  if (status == xnn_status_success) status = add_binary(n, xnn_binary_add, layout, calls);
  if (status == xnn_status_success) status = add_softmax(softmax, layout, calls);
  if (status == xnn_status_success) status = add_product(product, false, layout, calls);
  return status;
}

}  // namespace

xnn_status make_attention(const OperatorNode& n, std::vector<OperatorCalls>* calls) {
  return n.out().type == DataType::kFp16
             ? add_all(n, EDGEWISE_XNN_OPERATOR(batch_matrix_multiply_nc_f16),
                       EDGEWISE_XNN_OPERATOR(softmax_nc_f16), calls)
             : add_all(n, EDGEWISE_XNN_OPERATOR(batch_matrix_multiply_nc_f32),
                       EDGEWISE_XNN_OPERATOR(softmax_nc_f32), calls);
}

}  // namespace edgewise::xnnpack
