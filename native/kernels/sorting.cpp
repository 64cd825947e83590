// topk, sort and medians along a dimension. NaN is larger than any number; of equal elements the
// first comes first. The median of an even number is the lower one of the two in the middle.
#include <algorithm>
#include <cmath>

#include "cpu_dispatch.h"
#include "rows.h"

namespace edgewise {
inline namespace HWY_NAMESPACE {
namespace {

// A number's bits as an unsigned integer that orders as the number does, NaN last; an integer's
// has as many bytes as the type in which it is stored.
template <typename C>
struct SortKeys {
  using Key = std::conditional_t<sizeof(C) == 4, uint32_t, uint64_t>;
  static constexpr Key kSign = Key(1) << (sizeof(Key) * 8 - 1);

  SortKeys(ScalarType type, bool descending) {
    if constexpr (std::is_integral_v<C>) {
      bytes = static_cast<int>(element_size(type));
      unused = static_cast<int>(sizeof(C) - element_size(type)) * 8;
      const bool is_signed = type == ScalarType::kChar || type == ScalarType::kShort ||
                             type == ScalarType::kInt || type == ScalarType::kLong;
      bias = is_signed ? kSign >> unused : 0;
    }
    flipped = descending ? ~Key(0) >> unused : 0;
  }
  Key operator()(C value) const {
    if constexpr (std::is_floating_point_v<C>) {
      value = value == 0 ? C(0) : value;  // the zeros are equal
      const Key bits = std::bit_cast<Key>(value);
      const Key ordered = bits & kSign ? static_cast<Key>(~bits) : static_cast<Key>(bits | kSign);
      return (value != value ? ~Key(0) : ordered) ^ flipped;
    } else {
      return (static_cast<Key>(value) + bias) ^ flipped;
    }
  }

  int bytes = sizeof(Key), unused = 0;
  Key bias = 0, flipped = 0;
};

// Stable counting sorts by one byte of `order(item)` after the other, from `first` to `last`.
template <typename Item, typename Order>
Item* radix_sort(Item* items, Item* spare, int64_t n, int first, int last, Order order) {
  for (int byte = first; byte < last; ++byte) {
    int64_t counts[257] = {};
    for (int64_t i = 0; i < n; ++i) ++counts[1 + (order(items[i]) >> (8 * byte) & 255)];
    if (*std::max_element(counts, counts + 257) == n) continue;  // the byte is the same in all
    for (int i = 1; i < 256; ++i) counts[i] += counts[i - 1];
    for (int64_t i = 0; i < n; ++i) {
      spare[counts[order(items[i]) >> (8 * byte) & 255]++] = items[i];
    }
    std::swap(items, spare);
  }
  return items;
}

// A counting sort goes through its 256 counts for every byte of the key.
bool by_radix(int64_t n, int64_t k, int bytes) { return n >= 32 * bytes && k > n / 8; }

// Brings item `at` of the order of `n` to its index, what is before it to the front. Once for each
// type of item: inlined it would be most of this file's code.
template <typename Item>
[[gnu::noinline]] void select(Item* items, int64_t at, int64_t n) {
  std::nth_element(items, items + at, items + n);
}

// Sorts the first `k` of `n` keys of up to 32 bits: key in the upper half, index in the lower.
[[gnu::noinline]] const uint64_t* sort_items(uint64_t* items, uint64_t* spare, int64_t n, int64_t k,
                                             int bytes) {
  if (by_radix(n, k, bytes)) {
    return radix_sort(items, spare, n, 4, 4 + bytes, [](uint64_t item) { return item; });
  }
  if (k < n) select(items, k, n);
  std::sort(items, items + k);
  return items;
}

using WideItem = std::pair<uint64_t, uint64_t>;
[[gnu::noinline]] const WideItem* sort_items(WideItem* items, WideItem* spare, int64_t n, int64_t k,
                                             int bytes) {
  if (by_radix(n, k, bytes)) {
    return radix_sort(items, spare, n, 0, bytes, [](const WideItem& item) { return item.first; });
  }
  if (k < n) select(items, k, n);
  std::sort(items, items + k);
  return items;
}

enum class Pick : uint8_t { kFirst, kMedian, kNanMedian };

// Where the median of `n` elements with `numbers` that are not NaN stands in their order. A NaN is
// the median if it counts, or if all are.
int64_t median_index(Pick pick, int64_t n, int64_t numbers) {
  if (pick == Pick::kMedian && numbers < n) return numbers;
  return std::max<int64_t>(numbers - 1, 0) / 2;
}

// The first `k` of each row in order, or its median if `k` is 1, to both outputs, which have been
// resized.
template <typename C>
Status order_rows(KernelContext& context, const View& source, size_t along, int64_t k, bool largest,
                  Pick pick, const View& values, const View& indices) {
  constexpr bool kNarrow = sizeof(C) == 4;
  using Item = std::conditional_t<kNarrow, uint64_t, WideItem>;
  const int64_t n = source.sizes[along];
  if (kNarrow && n > int64_t{UINT32_MAX}) {
    return context.fail(Code::kUnsupported, "orders rows of less than 2^32 elements");
  }
  Scratch<C> row, sorted;
  Scratch<int64_t> order;
  Scratch<Item> items, spare;
  EDGEWISE_TRY(row.reserve(n));
  EDGEWISE_TRY(sorted.reserve(k));
  EDGEWISE_TRY(order.reserve(k));
  EDGEWISE_TRY(items.reserve(n));
  EDGEWISE_TRY(spare.reserve(n));
  const SortKeys<C> key_of(source.type, largest);
  for_rows<3>({values, source, indices}, along, [&](const auto& firsts) {
    load<C>(source.type, firsts[1], source.strides[along], n, row.data());
    for (int64_t i = 0; i < n; ++i) {
      const auto key = key_of(row[i]);
      const auto index = static_cast<uint64_t>(i);
      if constexpr (kNarrow)
        items[i] = static_cast<uint64_t>(key) << 32 | index;
      else
        items[i] = {key, index};
    }
    const Item* ordered = items.data();
    if (pick == Pick::kFirst && k == 1) {
      ordered = std::min_element(items.data(), items.data() + n);
    } else if (pick == Pick::kFirst) {
      ordered = sort_items(items.data(), spare.data(), n, k, key_of.bytes);
    } else {
      int64_t numbers = 0;
      for (int64_t i = 0; i < n; ++i) numbers += row[i] == row[i] ? 1 : 0;
      const int64_t at = median_index(pick, n, numbers);
      select(items.data(), at, n);
      ordered += at;
    }
    for (int64_t i = 0; i < k; ++i) {
      if constexpr (kNarrow)
        order[i] = static_cast<int64_t>(ordered[i] & UINT32_MAX);
      else
        order[i] = static_cast<int64_t>(ordered[i].second);
      sorted[i] = row[order[i]];
    }
    store<C>(values.type, sorted.data(), k, firsts[0], values.strides[along]);
    store<int64_t>(ScalarType::kLong, order.data(), k, firsts[2], indices.strides[along]);
  });
  return {};
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
  return with_short_compute_type(self->type(), [&](auto c) {
    return order_rows<decltype(c)>(context, source, along, k, largest, Pick::kFirst, value_view,
                                   index_view);
  });
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

Status check_values(KernelContext& context, const Tensor* self, const Tensor* values) {
  if (is_computable(self->type()) && self->type() == values->type()) return {};
  return context.fail(Code::kInvalidArgument, "gives values of the input's type; got %s to %s",
                      self->describe().c_str(), values->describe().c_str());
}

Status median_rows(KernelContext& context, Pick pick, const View& source, size_t along,
                   const View& values, const View& indices) {
  return with_short_compute_type(source.type, [&](auto c) {
    return order_rows<decltype(c)>(context, source, along, 1, false, pick, values, indices);
  });
}

// Of all elements, wherever they lie.
[[gnu::noinline]] Status median_of_all(KernelContext& context, Pick pick) {
  const Tensor* self = context.tensor(0);
  Tensor* out = output(context, 1);
  if (!context.ok()) return context.status();
  EDGEWISE_RETURN_IF_ERROR(check_values(context, self, out));
  EDGEWISE_TRY(out->resize({}));
  View source = with_dims(view_of(*self));
  const View values = with_dims(view_of(*out));
  if (self->numel() == 0) {
    if (!is_floating(self->type())) {
      return context.fail(Code::kInvalidArgument, "needs elements; got %s",
                          self->describe().c_str());
    }
    const double nan = std::nan("");
    store<double>(values.type, &nan, 1, values.data, 1);
    return {};
  }
  source.sizes = Dims();
  source.strides = Dims();
  source.sizes.push(self->numel());
  source.strides.push(1);
  int64_t index = 0;
  View indices = values;
  indices.data = reinterpret_cast<std::byte*>(&index);
  indices.type = ScalarType::kLong;
  return median_rows(context, pick, source, 0, values, indices);
}

[[gnu::noinline]] Status median_of_rows(KernelContext& context, Pick pick) {
  const Tensor* self = context.tensor(0);
  int64_t dim = context.integer(1);
  const bool keep = context.boolean(2);
  Tensor* values = output(context, 3);
  Tensor* indices = output(context, 4);
  if (!context.ok()) return context.status();
  EDGEWISE_RETURN_IF_ERROR(check_values(context, self, values));
  EDGEWISE_TRY(normalize_dim(dim, self->rank()));
  const size_t along = static_cast<size_t>(dim);
  const View source = with_dims(view_of(*self));
  if (indices->type() != ScalarType::kLong || source.sizes[along] == 0) {
    return context.fail(Code::kInvalidArgument,
                        "needs elements along dim, and int64 indices; got "
                        "%s and %s",
                        self->describe().c_str(), indices->describe().c_str());
  }
  Dims sizes(self->sizes());
  if (self->rank() > 0) {
    sizes.erase(along);
    if (keep) sizes.insert(along, 1);
  }
  EDGEWISE_TRY(values->resize(sizes));
  EDGEWISE_TRY(indices->resize(sizes));
  if (values->numel() == 0) return context.status();
  const auto with_row = [&](View view) {
    if (!keep && self->rank() > 0) {
      view.sizes.insert(along, 1);
      view.strides.insert(along, 1);
    }
    return with_dims(view);
  };
  return median_rows(context, pick, source, along, with_row(view_of(*values)),
                     with_row(view_of(*indices)));
}

template <Pick kPick>
Status median(KernelContext& context) {
  return median_of_all(context, kPick);
}
template <Pick kPick>
Status median_along(KernelContext& context) {
  return median_of_rows(context, kPick);
}

constexpr KernelEntry kKernels[] = {
    {"aten::median.out", 2, median<Pick::kMedian>},
    {"aten::median.dim_values", 5, median_along<Pick::kMedian>},
    {"aten::nanmedian.out", 2, median<Pick::kNanMedian>},
    {"aten::nanmedian.dim_values", 5, median_along<Pick::kNanMedian>},
    {"aten::topk.values", 7, topk},
    {"aten::sort.values", 5, sort<1>},
    {"aten::sort.values_stable", 6, sort<2>},
};
const KernelTable table(kEveryLevel, kSelected<kKernels>);

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace edgewise
