// Elements by index along a dimension: gather, and the scatters, which differ in what they
// write and how that joins what is there.
#include <cmath>
#include <cstring>
#include <string_view>

#include "compute_tensor.h"
#include "indices.h"
#include "kernel_status.h"
#include "view.h"

namespace edgewise {
inline namespace HWY_NAMESPACE {
namespace {

// A run of elements that belong together: the i-th of the other tensor, `other_step` apart, and
// the one of the indexed tensor at i * base_step + index[i * index_step] * step. `counts` are the
// caller's, of the indexed tensor's elements.
struct Pairs {
  const int64_t* index;
  int64_t index_step, base, base_step, step, other, other_step, count;
  int64_t* counts;

  // Calls f(offset in the indexed tensor, offset in the other) for each.
  template <typename F>
  void each(F&& f) const {
    if (index_step == 1 && base_step == 0 && other_step == 1) {
      for (int64_t i = 0; i < count; ++i) f(base + index[i] * step, other + i);
    } else if (index_step == 1 && base_step == 1 && other_step == 1) {
      for (int64_t i = 0; i < count; ++i) f(base + i + index[i] * step, other + i);
    } else {
      for (int64_t i = 0; i < count; ++i) {
        f(base + i * base_step + index[i * index_step] * step, other + i * other_step);
      }
    }
  }
};
using PairLoop = void (*)(void* indexed, void* other, const Pairs& pairs);

// What gather and the scatters have in common: every element of the index names one of the
// indexed view (dimension `dim` replaced by the index) for one of the other view.
struct AlongDim {
  View indexed, other, index;
  size_t dim = 0;

  Status prepare(const View& indexed_view, const View& other_view, const Tensor& index_tensor,
                 int64_t along) {
    indexed = indexed_view;
    other = other_view;
    index = view_of(index_tensor);
    for (View* view : {&indexed, &other, &index}) {
      if (view->sizes.size() > 0) continue;
      view->sizes.push(1);
      view->strides.push(1);
    }
    const size_t rank = index.sizes.size();
    bool fits = indexed.sizes.size() == rank && other.sizes.size() == rank;
    EDGEWISE_RETURN_IF_ERROR(normalize_dim(along, indexed.sizes.size()));
    dim = static_cast<size_t>(along);
    for (size_t i = 0; fits && i < rank; ++i) {
      fits = index.sizes[i] <= other.sizes[i] && (i == dim || index.sizes[i] <= indexed.sizes[i]);
    }
    if (index.numel() > 0 && !fits) {
      return error(Code::kInvalidArgument,
                   "the index fits into both tensors except along dimension %zu; got index %s, "
                   "tensors %s and %s",
                   dim, describe(index.sizes).c_str(), describe(indexed.sizes).c_str(),
                   describe(other.sizes).c_str());
    }
    return {};
  }

  Status each(const Tensor& index_tensor, PairLoop loop, int64_t* counts = nullptr) {
    if (index.numel() == 0) return {};
    Indices indices;
    EDGEWISE_RETURN_IF_ERROR(
        indices.read(index_tensor, indexed.sizes[dim], Indices::Negative::kRefused));
    // In row-major order of the index, whose dimensions join where they can.
    const Dims index_strides = contiguous_strides(index.sizes);
    Dims fixed = indexed.strides;
    fixed[dim] = 0;
    const int64_t step = indexed.strides[dim];
    const Loop<3> walk(index.sizes, {&index_strides, &fixed, &other.strides});
    walk.run([&](const auto& offsets, int64_t count, const auto& steps) {
      loop(indexed.data, other.data,
           Pairs{indices.data() + offsets[0], steps[0], offsets[1], steps[1], step, offsets[2],
                 steps[2], count, counts});
    });
    return {};
  }
};

Status check_same_type(KernelContext& context, const Tensor* a, const Tensor* b) {
  if (a->type() == b->type()) return {};
  return context.fail(Code::kInvalidArgument, "types are equal; got %s and %s",
                      a->describe().c_str(), b->describe().c_str());
}

// Moves elements as integers of their size: from the indexed tensor, or to it.
template <typename Unit, bool kToIndexed>
void move(void* indexed, void* other, const Pairs& pairs) {
  auto *a = static_cast<Unit*>(indexed), *b = static_cast<Unit*>(other);
  pairs.each([a, b](int64_t to, int64_t from) {
    if constexpr (kToIndexed) {
      a[to] = b[from];
    } else {
      b[from] = a[to];
    }
  });
}

template <bool kToIndexed>
PairLoop move_of(ScalarType type) {
  switch (element_size(type)) {
    case 1:
      return move<uint8_t, kToIndexed>;
    case 2:
      return move<uint16_t, kToIndexed>;
    case 4:
      return move<uint32_t, kToIndexed>;
    default:
      return move<uint64_t, kToIndexed>;
  }
}

Status gather(KernelContext& context) {
  const Tensor* self = context.tensor(0);
  const int64_t dim = context.integer(1);
  const Tensor* index = context.tensor(2);
  Tensor* out = output(context, 4);
  if (!context.ok()) return context.status();
  EDGEWISE_RETURN_IF_ERROR(check_same_type(context, self, out));
  EDGEWISE_TRY(out->resize(index->sizes()));
  AlongDim along;
  EDGEWISE_TRY(along.prepare(view_of(*self), view_of(*out), *index, dim));
  return finish(context, along.each(*index, move_of<false>(self->type())));
}

enum class Join : uint8_t { kReplace, kAdd, kMultiply, kMean, kLeast, kMost };

// "add" and "multiply" are scatter's names, the others scatter_reduce's.
Status read_join(KernelContext& context, size_t index, Join& join) {
  const std::string_view name = context.string(index);
  if (!context.ok()) return context.status();
  if (name == "sum" || name == "add") {
    join = Join::kAdd;
  } else if (name == "prod" || name == "multiply") {
    join = Join::kMultiply;
  } else if (name == "mean") {
    join = Join::kMean;
  } else if (name == "amin") {
    join = Join::kLeast;
  } else if (name == "amax") {
    join = Join::kMost;
  } else {
    return context.fail(Code::kInvalidArgument,
                        "a reduction is sum, prod, mean, amin or amax; got \"%.*s\"",
                        static_cast<int>(name.size()), name.data());
  }
  return {};
}

template <Join kJoin, typename C>
C joined(C a, C b) {
  switch (kJoin) {
    case Join::kAdd:
    case Join::kMean:
      return wrap_add(a, b);
    case Join::kMultiply:
      return wrap_mul(a, b);
    case Join::kLeast:
      return a != a || a < b ? a : b;
    case Join::kMost:
      return a != a || a > b ? a : b;
    default:
      return b;
  }
}

// Joins elements of the other tensor to those of the indexed one. `counts`, if given, hold how
// many each has been joined of; the first replaces what is there.
template <Join kJoin, typename C>
void join(void* indexed, void* other, const Pairs& pairs) {
  auto *sums = static_cast<C*>(indexed), *source = static_cast<C*>(other);
  if (int64_t* counts = pairs.counts) {
    return pairs.each([=](int64_t to, int64_t from) {
      const C value = source[from];
      sums[to] = counts[to]++ == 0 ? value : joined<kJoin>(sums[to], value);
    });
  }
  pairs.each([=](int64_t to, int64_t from) { sums[to] = joined<kJoin>(sums[to], source[from]); });
}

template <typename C>
PairLoop join_of(Join how) {
  switch (how) {
    case Join::kAdd:
    case Join::kMean:
      return join<Join::kAdd, C>;
    case Join::kMultiply:
      return join<Join::kMultiply, C>;
    case Join::kLeast:
      return join<Join::kLeast, C>;
    default:
      return join<Join::kMost, C>;
  }
}

// Joins elements of `source` to those of `self`: of a copy in a wider type, which rounds once, if
// there is one; else where the result lies.
template <typename C>
Status join_elements(Join join, bool include_self, const Tensor& self, const Tensor& index,
                     const View& source, int64_t dim, Tensor* out) {
  const bool counted = join == Join::kMean || !include_self;
  ComputeInput<C> elements;
  EDGEWISE_RETURN_IF_ERROR(elements.read(source));
  const View from = elements.view();
  AlongDim along;
  if (self.type() == kTypeOf<C> && !counted) {
    EDGEWISE_RETURN_IF_ERROR(start_from(self, out));
    EDGEWISE_RETURN_IF_ERROR(along.prepare(view_of(*out), from, index, dim));
    return along.each(index, join_of<C>(join));
  }
  const int64_t count = self.numel();
  Scratch<C> sums;
  Scratch<int64_t> counts;
  EDGEWISE_RETURN_IF_ERROR(sums.reserve(count));
  if (counted) {
    EDGEWISE_RETURN_IF_ERROR(counts.reserve(count));
    std::fill_n(counts.data(), count, include_self ? 1 : 0);
  }
  View held = view_of(self);
  held.data = reinterpret_cast<std::byte*>(sums.data());
  held.type = kTypeOf<C>;
  held.strides = contiguous_strides(held.sizes);
  EDGEWISE_RETURN_IF_ERROR(assign(held, view_of(self)));
  EDGEWISE_RETURN_IF_ERROR(along.prepare(held, from, index, dim));
  EDGEWISE_RETURN_IF_ERROR(along.each(index, join_of<C>(join), counted ? counts.data() : nullptr));
  if (join == Join::kMean) {
    for (int64_t i = 0; i < count; ++i) {
      if (counts[i] < 2) continue;
      if constexpr (std::is_integral_v<C>) {  // rounds down
        const C rest = sums[i] % counts[i];
        sums[i] = sums[i] / counts[i] - (rest < 0 ? 1 : 0);
      } else {
        sums[i] /= static_cast<C>(counts[i]);
      }
    }
  }
  return assign(view_of(*out), held);
}

// `value`, if given, is written instead of `source`.
Status scatter(KernelContext& context, const Tensor* source, const Scalar* value, Join join,
               bool include_self, Tensor* out) {
  const Tensor* self = context.tensor(0);
  const int64_t dim = context.integer(1);
  const Tensor* index = context.tensor(2);
  if (!context.ok()) return context.status();
  EDGEWISE_RETURN_IF_ERROR(check_same_type(context, self, out));
  if (source) EDGEWISE_RETURN_IF_ERROR(check_same_type(context, self, source));
  alignas(8) std::byte element[8] = {};
  View from;
  if (source) {
    from = view_of(*source);
  } else {
    from = {element, self->type(), Dims(), Dims()};
    EDGEWISE_TRY(fill(from, *value));
    from = from.expand(Dims(index->sizes()));
  }
  if (join != Join::kReplace) {
    if (!is_computable(self->type())) {
      return context.fail(Code::kUnsupported, "joins numbers; got %s", self->describe().c_str());
    }
    EDGEWISE_TRY(out->resize(self->sizes()));
    return with_short_compute_type(self->type(), [&](auto c) {
      return finish(context,
                    join_elements<decltype(c)>(join, include_self, *self, *index, from, dim, out));
    });
  }
  EDGEWISE_TRY(start_from(*self, out));
  AlongDim along;
  EDGEWISE_TRY(along.prepare(view_of(*out), from, *index, dim));
  return finish(context, along.each(*index, move_of<true>(self->type())));
}

template <Join kJoin>
Status scatter_source(KernelContext& context) {
  const Tensor* source = context.tensor(3);
  Tensor* out = output(context, 4, kSelf);
  if (!context.ok()) return context.status();
  return scatter(context, source, nullptr, kJoin, true, out);
}

Status scatter_value(KernelContext& context) {
  const Scalar value = context.scalar(3);
  Tensor* out = output(context, 4, kSelf);
  if (!context.ok()) return context.status();
  return scatter(context, nullptr, &value, Join::kReplace, true, out);
}

template <bool kValue>
Status scatter_joined(KernelContext& context) {
  const Tensor* source = kValue ? nullptr : context.tensor(3);
  const Scalar value = kValue ? context.scalar(3) : Scalar{};
  Join join = Join::kReplace;
  EDGEWISE_RETURN_IF_ERROR(read_join(context, 4, join));
  Tensor* out = output(context, 5, kSelf);
  if (!context.ok()) return context.status();
  return scatter(context, source, &value, join, true, out);
}

Status scatter_reduce(KernelContext& context) {
  const Tensor* source = context.tensor(3);
  Join join = Join::kReplace;
  EDGEWISE_RETURN_IF_ERROR(read_join(context, 4, join));
  const bool include_self = context.boolean(5);
  Tensor* out = output(context, 6, kSelf);
  if (!context.ok()) return context.status();
  return scatter(context, source, nullptr, join, include_self, out);
}

constexpr KernelEntry kKernels[] = {
    {"aten::gather.out", 5, gather},
    {"aten::scatter.src_out", 5, scatter_source<Join::kReplace>},
    {"aten::scatter.value_out", 5, scatter_value},
    {"aten::scatter.reduce_out", 6, scatter_joined<false>},
    {"aten::scatter.value_reduce_out", 6, scatter_joined<true>},
    {"aten::scatter_add.out", 5, scatter_source<Join::kAdd>},
    {"aten::scatter_reduce.two_out", 7, scatter_reduce},
};
const KernelTable table(HWY_TARGET, kSelected<kKernels>);

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace edgewise
