// Along a dimension: cumsum, cumprod, glu.
#include <cmath>

#include "compute_tensor.h"
#include "rows.h"
#include "vector_math.h"

namespace edgewise {
inline namespace HWY_NAMESPACE {
namespace {

template <bool kProduct>
Status accumulate(KernelContext& context) {
  const Tensor* self = context.tensor(0);
  int64_t dim = context.integer(1);
  Tensor* out = output(context, 3);
  if (!context.ok()) return context.status();
  if (!is_computable(self->type()) || !is_computable(out->type()) ||
      (is_floating(self->type()) && !is_floating(out->type()))) {
    return context.fail(Code::kInvalidArgument, "takes numbers; got %s to %s",
                        self->describe().c_str(), out->describe().c_str());
  }
  EDGEWISE_TRY(normalize_dim(dim, self->rank()));
  EDGEWISE_TRY(out->resize(self->sizes()));
  if (self->numel() == 0) return context.status();
  const size_t along = static_cast<size_t>(dim);
  const View source = with_dims(view_of(*self)), target = with_dims(view_of(*out));
  const int64_t n = source.sizes[along];
  const auto run = [&](auto c) -> Status {
    using C = decltype(c);
    return change_rows<C>(source, target, along, [&](C* row) {
      if (!kProduct) row[0] = wrap_add(row[0], C(0));  // sums begin with 0: none is -0
      for (int64_t i = 1; i < n; ++i) {
        row[i] = kProduct ? wrap_mul(row[i], row[i - 1]) : wrap_add(row[i], row[i - 1]);
      }
    });
  };
  return finish(context, is_floating(out->type()) ? run(double{}) : run(int64_t{}));
}

// The first half times the sigmoid of the second.
Status glu(KernelContext& context) {
  const Tensor* self = context.tensor(0);
  int64_t dim = context.integer(1);
  Tensor* out = output(context, 2);
  if (!context.ok()) return context.status();
  EDGEWISE_RETURN_IF_ERROR(check_floating(context, self));
  EDGEWISE_RETURN_IF_ERROR(check_floating(context, out));
  EDGEWISE_TRY(check_has_dims(view_of(*self)));
  EDGEWISE_TRY(normalize_dim(dim, self->rank()));
  const size_t along = static_cast<size_t>(dim);
  const int64_t n = self->size(along) / 2;
  if (self->size(along) % 2 != 0) {
    return context.fail(Code::kInvalidArgument, "dimension %zu has an even size; got %s", along,
                        self->describe().c_str());
  }
  Dims sizes(self->sizes());
  sizes[along] = n;
  EDGEWISE_TRY(out->resize(sizes));
  if (out->numel() == 0) return context.status();
  const View source = view_of(*self), target = view_of(*out);
  return with_floating_type(self->type(), [&](auto c) -> Status {
    using C = decltype(c);
    Scratch<C> row;
    EDGEWISE_TRY(row.reserve(2 * n));
    for_rows<2>({target, source}, along, [&](const auto& firsts) {
      load<C>(source.type, firsts[1], source.strides[along], 2 * n, row.data());
      for (int64_t i = 0; i < n; ++i) row[i] = row[i] * math::sigmoid(row[n + i]);
      store<C>(target.type, row.data(), n, firsts[0], target.strides[along]);
    });
    return {};
  });
}

constexpr KernelEntry kKernels[] = {
    {"aten::cumprod.out", 4, accumulate<true>},
    {"aten::cumsum.out", 4, accumulate<false>},
    {"aten::glu.out", 3, glu},
};
const KernelTable table(HWY_TARGET, kSelected<kKernels>);

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace edgewise
