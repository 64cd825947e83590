// median and nanmedian, of all elements and along a dimension: of an even number the lower one of
// the two in the middle. NaN is larger than any number.
#include <algorithm>
#include <limits>

#include "compute_tensor.h"
#include "levels.h"
#include "rows.h"

namespace edgewise {
inline namespace EDGEWISE_TARGET {
namespace {

// A floating type is read as double, any other as int64: both hold the values as they are.
template <typename C>
struct Item {
  C value;
  int64_t place;
};

// Without kIgnoreNan a NaN is the median, the first of several; else the median is of the others,
// or NaN where there are none. `items` holds `n` > 0 and is put into another order.
template <typename C>
Item<C> median_of(Item<C>* items, int64_t n, bool ignore_nan) {
  int64_t numbers = n;
  if constexpr (std::is_floating_point_v<C>) {
    const auto is_number = [](const Item<C>& item) { return item.value == item.value; };
    if (!ignore_nan) {
      Item<C>* const nan = std::find_if_not(items, items + n, is_number);
      if (nan != items + n) return *nan;
    }
    numbers = std::partition(items, items + n, is_number) - items;
    if (numbers == 0) return *items;
  }
  Item<C>* const middle = items + (numbers - 1) / 2;
  std::nth_element(items, middle, items + numbers, [](const Item<C>& a, const Item<C>& b) {
    return a.value < b.value || (a.value == b.value && a.place < b.place);
  });
  return *middle;
}

template <typename Function>
Status with_wide_type(ScalarType type, Function&& function) {
  return is_integral(type) ? function(int64_t()) : function(double());
}

Status check(KernelContext& context, const Tensor* self, const Tensor* values) {
  if (is_computable(self->type()) && self->type() == values->type()) return {};
  return context.fail(Code::kInvalidArgument, "gives values of the input's type; got %s to %s",
                      self->describe().c_str(), values->describe().c_str());
}

template <bool kIgnoreNan>
Status median(KernelContext& context) {
  const Tensor* self = context.tensor(0);
  Tensor* out = output(context, 1);
  if (!context.ok()) return context.status();
  EDGEWISE_RETURN_IF_ERROR(check(context, self, out));
  EDGEWISE_TRY(out->resize({}));
  const View source = view_of(*self), target = view_of(*out);
  return with_wide_type(self->type(), [&](auto c) -> Status {
    using C = decltype(c);
    const int64_t n = self->numel();
    C found = std::numeric_limits<C>::has_quiet_NaN ? std::numeric_limits<C>::quiet_NaN()
                                                    : std::numeric_limits<C>::lowest();
    if (n > 0) {
      ComputeInput<C> all;
      Scratch<Item<C>> items;
      EDGEWISE_TRY(all.read(source, true));
      EDGEWISE_TRY(items.reserve(n));
      for (int64_t i = 0; i < n; ++i) items[i] = {all.data[i], i};
      found = median_of(items.data(), n, kIgnoreNan).value;
    }
    store<C>(target.type, &found, 1, target.data, 1);
    return {};
  });
}

template <bool kIgnoreNan>
Status median_along(KernelContext& context) {
  const Tensor* self = context.tensor(0);
  int64_t dim = context.integer(1);
  const bool keep = context.boolean(2);
  Tensor* values = output(context, 3);
  Tensor* indices = output(context, 4);
  if (!context.ok()) return context.status();
  EDGEWISE_RETURN_IF_ERROR(check(context, self, values));
  if (indices->type() != ScalarType::kLong) {
    return context.fail(Code::kInvalidArgument, "gives indices of int64; got %s",
                        indices->describe().c_str());
  }
  EDGEWISE_TRY(normalize_dim(dim, self->rank()));
  const size_t along = static_cast<size_t>(dim);
  const View source = with_dims(view_of(*self));
  const int64_t n = source.sizes[along];
  Dims sizes(self->sizes());
  if (self->rank() > 0) {
    if (keep)
      sizes[along] = 1;
    else
      sizes.erase(along);
  }
  EDGEWISE_TRY(values->resize(sizes));
  EDGEWISE_TRY(indices->resize(sizes));
  if (values->numel() == 0) return context.status();
  if (n == 0) {
    return context.fail(Code::kInvalidArgument, "needs elements along dimension %zu of %s", along,
                        self->describe().c_str());
  }
  // The results with a dimension of one element where the rows run.
  const auto with_row = [&](View view) {
    if (!keep && self->rank() > 0) {
      view.sizes.insert(along, 1);
      view.strides.insert(along, 1);
    }
    return with_dims(view);
  };
  const View value_view = with_row(view_of(*values)), index_view = with_row(view_of(*indices));
  return with_wide_type(self->type(), [&](auto c) -> Status {
    using C = decltype(c);
    Scratch<C> row;
    Scratch<Item<C>> items;
    EDGEWISE_TRY(row.reserve(n));
    EDGEWISE_TRY(items.reserve(n));
    for_rows<3>({value_view, source, index_view}, along, [&](const auto& firsts) {
      load<C>(source.type, firsts[1], source.strides[along], n, row.data());
      for (int64_t i = 0; i < n; ++i) items[i] = {row[i], i};
      const Item<C> found = median_of(items.data(), n, kIgnoreNan);
      store<C>(value_view.type, &found.value, 1, firsts[0], 1);
      store<int64_t>(ScalarType::kLong, &found.place, 1, firsts[2], 1);
    });
    return {};
  });
}

constexpr KernelEntry kKernels[] = {
    {"aten::median.out", 2, median<false>},
    {"aten::median.dim_values", 5, median_along<false>},
    {"aten::nanmedian.out", 2, median<true>},
    {"aten::nanmedian.dim_values", 5, median_along<true>},
};
const KernelTable table(kEveryLevel, kKernels);

}  // namespace
}  // namespace EDGEWISE_TARGET
}  // namespace edgewise
