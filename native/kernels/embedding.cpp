// Tables of rows: embedding, its gradient, bags (rows joined), and rows scaled to a norm.
#include <cmath>
#include <cstring>
#include <limits>

#include "compute_tensor.h"
#include "indices.h"

namespace edgewise {
inline namespace HWY_NAMESPACE {
namespace {

Status check_table(KernelContext& context, const Tensor* table, const Tensor* out) {
  if (table->rank() == 2 && table->type() == out->type() && is_computable(table->type())) return {};
  return context.fail(Code::kInvalidArgument,
                      "takes a table of rows [N, D] and an output of its type; got %s and %s",
                      table->describe().c_str(), out->describe().c_str());
}

Status embedding(KernelContext& context) {
  const Tensor* weight = context.tensor(0);
  const Tensor* indices = context.tensor(1);
  Tensor* out = output(context, 5);
  if (!context.ok()) return context.status();
  if (weight->rank() != 2 || weight->type() != out->type() || indices->rank() >= kMaxDims) {
    return context.fail(Code::kInvalidArgument,
                        "takes a table of rows [N, D] and an output of its type; got %s and %s",
                        weight->describe().c_str(), out->describe().c_str());
  }
  Dims sizes(indices->sizes());
  sizes.push(weight->size(1));
  EDGEWISE_TRY(out->resize(sizes));
  Indices rows;
  EDGEWISE_TRY(rows.read(*indices, weight->size(0), Indices::Negative::kRefused));
  const View table = view_of(*weight), target = view_of(*out);
  const size_t row = static_cast<size_t>(weight->size(1)) * element_size(weight->type());
  if (target.is_row_major() && table.is_row_major()) {
    for (int64_t i = 0; i < rows.count() && row > 0; ++i) {
      std::memmove(target.data + static_cast<size_t>(i) * row,
                   table.data + static_cast<size_t>(rows[i]) * row, row);
    }
    return context.status();
  }
  // Any layout: one row of the output at a time.
  View::Walk walk(Dims(indices->sizes()));
  for (int64_t i = 0; i < rows.count(); ++i, walk.next()) {
    View to = target;
    for (size_t dim = 0; dim < indices->rank(); ++dim) to = to.select(0, walk[dim]);
    EDGEWISE_TRY(assign(to, table.select(0, rows[i])));
  }
  return context.status();
}

Status embedding_backward(KernelContext& context) {
  const Tensor* gradient = context.tensor(0);
  const Tensor* indices = context.tensor(1);
  const int64_t count = context.integer(2), padding = context.integer(3);
  const bool by_frequency = context.boolean(4);
  Tensor* out = output(context, 5);
  if (!context.ok()) return context.status();
  const size_t rank = gradient->rank();
  if (rank != indices->rank() + 1 || gradient->type() != out->type() ||
      !is_computable(gradient->type()) ||
      !(Dims(gradient->sizes().first(rank - 1)) == Dims(indices->sizes()))) {
    return context.fail(Code::kInvalidArgument,
                        "takes a row for each index, and an output of their type; got %s and %s",
                        gradient->describe().c_str(), indices->describe().c_str());
  }
  const int64_t width = gradient->size(rank - 1);
  Dims sizes;
  EDGEWISE_TRY(to_sizes(std::array{count, width}, sizes));
  EDGEWISE_TRY(out->resize(sizes));
  Indices rows;
  EDGEWISE_TRY(rows.read(*indices, count, Indices::Negative::kRefused));
  const bool scaled = by_frequency && gradient->type() != ScalarType::kBool;
  return with_compute_type(gradient->type(), [&](auto c) -> Status {
    using C = decltype(c);
    ComputeInput<C> x;
    ComputeOutput<C> y;
    Scratch<int64_t> seen;
    EDGEWISE_TRY(x.read(view_of(*gradient), true));
    EDGEWISE_TRY(y.prepare(view_of(*out), true));
    EDGEWISE_TRY(seen.reserve(count));
    std::fill_n(seen.data(), count, 0);
    std::fill_n(y.data, out->numel(), C(0));
    for (int64_t i = 0; i < rows.count(); ++i) ++seen[rows[i]];
    for (int64_t i = 0; i < rows.count(); ++i) {
      if (rows[i] == padding) continue;
      // Of integers, what is there more than once counts for nothing, as in PyTorch.
      const C scale = scaled ? C(1) / static_cast<C>(seen[rows[i]]) : C(1);
      const C* from = x.data + i * width;
      C* to = y.data + rows[i] * width;
      EDGEWISE_INDEPENDENT
      for (int64_t k = 0; k < width; ++k) to[k] = wrap_add(to[k], wrap_mul(from[k], scale));
    }
    return finish(context, y.finish());
  });
}

// Rows that `indices` name and whose norm is more than max_norm are scaled down to it.
Status embedding_renorm(KernelContext& context) {
  const Tensor* self = context.tensor(0);
  const Tensor* indices = context.tensor(1);
  const double most = context.number(2), order = context.number(3);
  Tensor* out = output(context, 4);
  if (!context.ok()) return context.status();
  EDGEWISE_RETURN_IF_ERROR(check_table(context, self, out));
  Indices rows;
  EDGEWISE_TRY(rows.read(*indices, self->size(0), Indices::Negative::kRefused));
  EDGEWISE_TRY(out->resize(self->sizes()));
  const int64_t width = self->size(1);
  ComputeInput<double> x;
  ComputeOutput<double> y;
  EDGEWISE_TRY(x.read(view_of(*self), true));
  EDGEWISE_TRY(y.prepare(view_of(*out), true));
  std::copy_n(x.data, self->numel(), y.data);
  for (int64_t i = 0; i < rows.count(); ++i) {
    const double* from = x.data + rows[i] * width;
    double norm = 0;
    for (int64_t k = 0; k < width; ++k) {
      const double size = std::abs(from[k]);
      norm = std::isinf(order) ? std::max(norm, size) : norm + std::pow(size, order);
    }
    if (!std::isinf(order)) norm = std::pow(norm, 1 / order);
    const double scale = norm > most ? most / (norm + 1e-7) : 1;
    for (int64_t k = 0; k < width; ++k) y.data[rows[i] * width + k] = from[k] * scale;
  }
  return finish(context, y.finish());
}

enum BagMode : int64_t { kSum = 0, kMean = 1, kMax = 2 };

// Outputs: the bags; for each index its bag; the sizes of bags; where maxima come from.
Status embedding_bag(KernelContext& context) {
  const Tensor* weight = context.tensor(0);
  const Tensor* indices = context.tensor(1);
  const Tensor* offsets = context.tensor(2);
  const int64_t mode = context.integer(4);
  const Tensor* weights = context.optional_tensor(6);
  const bool last_included = context.boolean(7);
  int64_t padding = context.integer(8);
  Tensor* out = output(context, 9);
  Tensor* bag_of = output(context, 10);
  Tensor* bag_sizes = output(context, 11);
  Tensor* bag_details = output(context, 12);
  if (!context.ok()) return context.status();
  EDGEWISE_RETURN_IF_ERROR(check_table(context, weight, out));
  EDGEWISE_RETURN_IF_ERROR(check_floating(context, weight));
  const int64_t given = offsets->numel() - (last_included ? 1 : 0), width = weight->size(1);
  bool fits =
      mode >= kSum && mode <= kMax && indices->rank() == 1 && offsets->rank() == 1 && given >= 0 &&
      (!weights ||
       (mode == kSum && weights->numel() == indices->numel() && is_computable(weights->type())));
  for (const Tensor* other : {bag_of, bag_sizes, bag_details}) {
    fits = fits && is_integral(other->type());
  }
  if (!fits) {
    return context.fail(Code::kInvalidArgument,
                        "takes lists of indices and offsets, with weights for sums only; got %s, "
                        "%s, mode %lld",
                        indices->describe().c_str(), offsets->describe().c_str(),
                        static_cast<long long>(mode));
  }
  Indices rows, begins;
  EDGEWISE_TRY(rows.read(*indices, weight->size(0), Indices::Negative::kRefused));
  EDGEWISE_TRY(begins.read(*offsets, rows.count() + 1, Indices::Negative::kRefused));
  if (padding < 0) padding = -1;
  EDGEWISE_TRY(out->resize(std::array{given, width}));
  ComputeInput<double> scale;
  ComputeOutput<double> y;
  const View table = view_of(*weight);
  Scratch<double> held;
  EDGEWISE_TRY(held.reserve(width));
  if (weights) EDGEWISE_TRY(scale.read(view_of(*weights), true));
  EDGEWISE_TRY(y.prepare(view_of(*out), true));
  Scratch<int64_t> counts, owners, maxima;
  EDGEWISE_TRY(counts.reserve(given));
  EDGEWISE_TRY(owners.reserve(rows.count()));
  EDGEWISE_TRY(maxima.reserve(out->numel()));
  std::fill_n(y.data, out->numel(), 0.0);
  std::fill_n(maxima.data(), out->numel(), int64_t{-1});
  std::fill_n(owners.data(), rows.count(), int64_t{0});
  for (int64_t bag = 0; bag < given; ++bag) {
    const int64_t end = bag + 1 < offsets->numel() ? begins[bag + 1] : rows.count();
    counts[bag] = 0;
    for (int64_t i = begins[bag]; i < end; ++i) {
      owners[i] = bag;
      if (rows[i] == padding) continue;
      const bool first = counts[bag]++ == 0;
      load<double>(table.type, table.at(rows[i] * table.strides[0]), table.strides[1], width,
                   held.data());
      double* to = y.data + bag * width;
      if (mode != kMax) {
        const double factor = weights ? scale.data[i] : 1;
        for (int64_t k = 0; k < width; ++k) to[k] += held[k] * factor;
        continue;
      }
      for (int64_t k = 0; k < width; ++k) {
        if (!first && !(held[k] > to[k])) continue;
        to[k] = held[k];
        maxima[bag * width + k] = rows[i];
      }
    }
    for (int64_t k = 0; mode == kMean && k < width && counts[bag] > 1; ++k) {
      y.data[bag * width + k] /= static_cast<double>(counts[bag]);
    }
  }
  EDGEWISE_TRY(y.finish());
  // What only a gradient needs has the shape that the program gives it, where it can be known.
  const auto give = [&](Tensor* tensor, const int64_t* values, const Dims& sizes) -> Status {
    if (tensor->numel() == 0 && tensor->dynamism() == Dynamism::kStatic) return {};
    if (tensor->dynamism() == Dynamism::kStatic && !(Dims(tensor->sizes()) == sizes)) {
      return fill(view_of(*tensor), Scalar{});
    }
    EDGEWISE_RETURN_IF_ERROR(tensor->resize(sizes));
    return assign(view_of(*tensor),
                  {const_cast<std::byte*>(reinterpret_cast<const std::byte*>(values)),
                   ScalarType::kLong, sizes, contiguous_strides(sizes)});
  };
  EDGEWISE_TRY(give(bag_of, owners.data(), Dims(std::array{rows.count()})));
  EDGEWISE_TRY(give(bag_sizes, counts.data(), Dims(std::array{given})));
  const bool has_maxima = mode == kMax;
  return finish(context, has_maxima
                             ? give(bag_details, maxima.data(), Dims(std::array{given, width}))
                             : give(bag_details, counts.data(), Dims(std::array{given})));
}

constexpr KernelEntry kKernels[] = {
    {"aten::embedding.out", 6, embedding},
    {"aten::embedding_dense_backward.out", 6, embedding_backward},
    {"aten::embedding_renorm.out", 5, embedding_renorm},
    {"aten::_embedding_bag.out", 13, embedding_bag},
    {"aten::_embedding_bag_forward_only.out", 13, embedding_bag},
};
const KernelTable table(HWY_TARGET, kSelected<kKernels>);

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace edgewise
