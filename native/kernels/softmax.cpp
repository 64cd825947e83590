// Softmax and its logarithm.
#include <cmath>
#include <limits>

#include "compute_tensor.h"
#include "rows.h"

namespace edgewise {
namespace {

template <typename C>
void softmax_row(const C* in, C* out, int64_t n, bool logarithm) {
  C most = -std::numeric_limits<C>::infinity();
  for (int64_t i = 0; i < n; ++i) most = in[i] > most || in[i] != in[i] ? in[i] : most;
  double total = 0;
  for (int64_t i = 0; i < n; ++i) {
    const C shifted = in[i] - most;
    const C power = std::exp(shifted);
    total += static_cast<double>(power);
    out[i] = logarithm ? shifted : power;
  }
  if (logarithm) {
    const C sum = static_cast<C>(std::log(total));
    for (int64_t i = 0; i < n; ++i) out[i] -= sum;
  } else {
    const C scale = static_cast<C>(1.0 / total);
    for (int64_t i = 0; i < n; ++i) out[i] *= scale;
  }
}

template <bool kLogarithm>
Status softmax(KernelContext& context) {
  const Tensor* self = context.tensor(0);
  int64_t dim = context.integer(1);
  (void)context.boolean(2);  // half_to_float: the output's type says it
  Tensor* out = output(context, 3);
  if (!context.ok()) return context.status();
  EDGEWISE_RETURN_IF_ERROR(check_floating(context, self));
  EDGEWISE_RETURN_IF_ERROR(check_floating(context, out));
  EDGEWISE_TRY(normalize_dim(dim, self->rank()));
  EDGEWISE_TRY(out->resize(self->sizes()));
  if (self->numel() == 0) return context.status();

  const View source = with_dims(view_of(*self)), target = with_dims(view_of(*out));
  const size_t along = static_cast<size_t>(dim);
  const int64_t n = source.sizes[along];
  return with_floating_type(self->type(), [&](auto c) -> Status {
    using C = decltype(c);
    Scratch<C> row;
    EDGEWISE_TRY(row.reserve(2 * n));
    C* result = row.data() + n;
    for_rows<2>({target, source}, along, [&](const auto& firsts) {
      load<C>(source.type, firsts[1], source.strides[along], n, row.data());
      softmax_row(row.data(), result, n, kLogarithm);
      store<C>(target.type, result, n, firsts[0], target.strides[along]);
    });
    return {};
  });
}

const KernelRegistration registrations[] = {
    {"aten::_softmax.out", 4, softmax<false>},
    {"aten::_log_softmax.out", 4, softmax<true>},
};

}  // namespace
}  // namespace edgewise
