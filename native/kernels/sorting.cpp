// topk and sort along a dimension. NaN is larger than any number; of equal elements the
// first comes first.
#include <algorithm>

#include "rows.h"

namespace edgewise {
namespace {

// The first `k` of each row in order, to both outputs, which have been resized.
Status order_rows(KernelContext& context, const View& source, size_t along, int64_t k, bool largest,
                  const View& values, const View& indices) {
  const int64_t n = source.sizes[along];
  return with_compute_type(source.type, [&](auto c) -> Status {
    using C = decltype(c);
    Scratch<C> row, sorted;
    Scratch<int64_t> order;
    EDGEWISE_TRY(row.reserve(n));
    EDGEWISE_TRY(sorted.reserve(k));
    EDGEWISE_TRY(order.reserve(n));
    const auto less = [](C a, C b) { return a < b || (b != b && a == a); };
    for_rows<3>({values, source, indices}, along, [&](const auto& firsts) {
      load<C>(source.type, firsts[1], source.strides[along], n, row.data());
      for (int64_t i = 0; i < n; ++i) order[i] = i;
      std::partial_sort(order.data(), order.data() + k, order.data() + n,
                        [&](int64_t a, int64_t b) {
                          const C x = row[a], y = row[b];
                          if (largest ? less(y, x) : less(x, y)) return true;
                          if (largest ? less(x, y) : less(y, x)) return false;
                          return a < b;
                        });
      for (int64_t i = 0; i < k; ++i) sorted[i] = row[order[i]];
      store<C>(values.type, sorted.data(), k, firsts[0], values.strides[along]);
      store<int64_t>(ScalarType::kLong, order.data(), k, firsts[2], indices.strides[along]);
    });
    return {};
  });
}

Status order(KernelContext& context, const Tensor* self, int64_t dim, std::optional<int64_t> count,
             bool largest, Tensor* values, Tensor* indices) {
  if (!is_computable(self->type()) || self->type() != values->type() ||
      indices->type() != ScalarType::kLong) {
    return context.fail(Code::kInvalidArgument,
                        "gives values of the input's type and int64 indices; got %s to %s and %s",
                        self->describe().c_str(), values->describe().c_str(),
                        indices->describe().c_str());
  }
  EDGEWISE_TRY(normalize_dim(dim, self->rank()));
  const size_t along = static_cast<size_t>(dim);
  const View source = with_dims(view_of(*self));
  const int64_t k = count.value_or(source.sizes[along]);
  if (k < 0 || k > source.sizes[along]) {
    return context.fail(Code::kInvalidArgument,
                        "k is at most the size of dimension %zu of %s; got %lld", along,
                        self->describe().c_str(), static_cast<long long>(k));
  }
  Dims sizes(self->sizes());
  if (self->rank() > 0) sizes[along] = k;
  EDGEWISE_TRY(values->resize(sizes));
  EDGEWISE_TRY(indices->resize(sizes));
  View value_view = with_dims(view_of(*values)), index_view = with_dims(view_of(*indices));
  if (self->numel() == 0 || k == 0) return context.status();
  return order_rows(context, source, along, k, largest, value_view, index_view);
}

Status topk(KernelContext& context) {
  const Tensor* self = context.tensor(0);
  const int64_t k = context.integer(1), dim = context.integer(2);
  const bool largest = context.boolean(3);
  (void)context.boolean(4);  // sorted: always
  Tensor* values = output(context, 5);
  Tensor* indices = output(context, 6);
  if (!context.ok()) return context.status();
  return order(context, self, dim, k, largest, values, indices);
}

// Always stable, so the argument that asks for it is passed over.
template <size_t kDim>
Status sort(KernelContext& context) {
  const Tensor* self = context.tensor(0);
  const int64_t dim = context.integer(kDim);
  const bool descending = context.boolean(kDim + 1);
  Tensor* values = output(context, kDim + 2);
  Tensor* indices = output(context, kDim + 3);
  if (!context.ok()) return context.status();
  return order(context, self, dim, std::nullopt, descending, values, indices);
}

const KernelRegistration registrations[] = {
    {"aten::topk.values", 7, topk},
    {"aten::sort.values", 5, sort<1>},
    {"aten::sort.values_stable", 6, sort<2>},
};

}  // namespace
}  // namespace edgewise
