// Softmax and its logarithm.
#include <cmath>
#include <limits>

#include "array_reductions.h"
#include "compute_tensor.h"
#include "rows.h"
#include "vector_math.h"

namespace edgewise {
inline namespace HWY_NAMESPACE {
namespace {

constexpr int64_t kLanes = 16, kBlock = 256, kColumns = 32;

template <typename C>
void softmax_row(const C* in, C* out, int64_t n, bool logarithm) {
  C lanes[kLanes];
  std::fill_n(lanes, kLanes, -std::numeric_limits<C>::infinity());
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int64_t j = 0; j < kLanes; ++j) lanes[j] = in[i + j] > lanes[j] ? in[i + j] : lanes[j];
  }
  for (; i < n; ++i) lanes[0] = in[i] > lanes[0] ? in[i] : lanes[0];
  const C most = *std::max_element(lanes, lanes + kLanes);
  // NaN is not the largest, but it is in the sum.
  for (i = 0; i < n; ++i) out[i] = in[i] - most;
  double total = 0;
  C block[kBlock];
  for (int64_t start = 0; start < n; start += kBlock) {
    const int64_t count = std::min(kBlock, n - start);
    C* powers = logarithm ? block : out + start;
    for (i = 0; i < count; ++i) powers[i] = math::exp(out[start + i]);
    total += sum_of(powers, count);
  }
  if (logarithm) {
    const C logarithm_of_sum = static_cast<C>(std::log(total));
    for (i = 0; i < n; ++i) out[i] -= logarithm_of_sum;
  } else {
    const C scale = static_cast<C>(1.0 / total);
    for (i = 0; i < n; ++i) out[i] *= scale;
  }
}

// The same for `width` neighbouring columns, of which row i is at in + i * width; in place.
template <typename C>
void softmax_columns(C* x, int64_t n, int64_t width, bool logarithm) {
  C most[kColumns], sums[kColumns] = {}, powers[kColumns];
  std::copy_n(x, width, most);
  for (int64_t i = 1; i < n; ++i) {
    const C* row = x + i * width;
    for (int64_t j = 0; j < width; ++j) most[j] = row[j] > most[j] ? row[j] : most[j];
  }
  for (int64_t i = 0; i < n; ++i) {
    C* row = x + i * width;
    for (int64_t j = 0; j < width; ++j) row[j] -= most[j];
    for (int64_t j = 0; j < width; ++j) powers[j] = math::exp(row[j]);
    for (int64_t j = 0; j < width; ++j) sums[j] += powers[j];
    if (!logarithm) std::copy_n(powers, width, row);
  }
  for (int64_t j = 0; j < width; ++j) {
    sums[j] = logarithm ? static_cast<C>(math::log(static_cast<double>(sums[j]))) : C(1) / sums[j];
  }
  for (int64_t i = 0; i < n; ++i) {
    C* row = x + i * width;
    for (int64_t j = 0; j < width; ++j) row[j] = logarithm ? row[j] - sums[j] : row[j] * sums[j];
  }
}

Status softmax(KernelContext& context, bool logarithm) {
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
    const size_t last = source.sizes.size() - 1;
    const int64_t columns = source.sizes[last];
    if (along != last && source.strides[last] == 1 && target.strides[last] == 1 && columns > 1) {
      // Neighbours in memory belong to different rows: some of these at a time.
      EDGEWISE_TRY(row.reserve(n * kColumns));
      View from = source, to = target;
      from.sizes[last] = to.sizes[last] = 1;
      for (int64_t first = 0; first < columns; first += kColumns) {
        const int64_t width = std::min(kColumns, columns - first);
        for_rows<2>({to, from}, along, [&](const auto& firsts) {
          const int64_t in =
              source.strides[along] * static_cast<int64_t>(element_size(source.type));
          const int64_t out_step =
              target.strides[along] * static_cast<int64_t>(element_size(target.type));
          for (int64_t i = 0; i < n; ++i) {
            load<C>(source.type, firsts[1] + i * in, 1, width, row.data() + i * width);
          }
          softmax_columns(row.data(), n, width, logarithm);
          for (int64_t i = 0; i < n; ++i) {
            store<C>(target.type, row.data() + i * width, width, firsts[0] + i * out_step, 1);
          }
        });
        from.move(width), to.move(width);
      }
      return {};
    }
    return finish(context, change_rows<C>(source, target, along,
                                          [&](C* x) { softmax_row(x, x, n, logarithm); }));
  });
}

template <bool kLogarithm>
Status softmax(KernelContext& context) {
  return softmax(context, kLogarithm);
}

constexpr KernelEntry kKernels[] = {
    {"aten::_softmax.out", 4, softmax<false>},
    {"aten::_log_softmax.out", 4, softmax<true>},
};
const KernelTable table(HWY_TARGET, kSelected<kKernels>);

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace edgewise
