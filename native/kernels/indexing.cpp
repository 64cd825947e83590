// Reading by index: embedding, index_select, gather; writing by index: scatter. Elements
// are moved as they are; indices are int32 or int64, and checked.
#include <cstring>
#include <string>

#include "indices.h"
#include "kernel_status.h"
#include "view.h"

namespace edgewise {
namespace {

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
  View table = view_of(*weight);
  View target = view_of(*out);
  const bool direct = target.is_row_major() && table.is_row_major();
  const size_t row = static_cast<size_t>(weight->size(1)) * element_size(weight->type());
  if (direct) {
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

Status index_select(KernelContext& context) {
  const Tensor* self = context.tensor(0);
  int64_t dim = context.integer(1);
  const Tensor* index = context.tensor(2);
  Tensor* out = output(context, 3);
  if (!context.ok()) return context.status();
  EDGEWISE_TRY(normalize_dim(dim, self->rank()));
  if (index->rank() > 1) {
    return context.fail(Code::kInvalidArgument, "the index has at most one dimension; got %s",
                        index->describe().c_str());
  }
  View source = view_of(*self);
  if (self->rank() == 0) {
    source.sizes.push(1);
    source.strides.push(1);
  }
  const size_t along = static_cast<size_t>(dim);
  Indices indices;
  EDGEWISE_TRY(indices.read(*index, source.sizes[along], Indices::Negative::kRefused));
  Dims sizes(self->sizes());
  if (self->rank() > 0) sizes[along] = indices.count();
  EDGEWISE_TRY(out->resize(sizes));
  View target = view_of(*out);
  if (self->rank() == 0) {
    target.sizes.push(1);
    target.strides.push(1);
  }
  for (int64_t i = 0; i < indices.count() && i < target.sizes[along]; ++i) {
    EDGEWISE_TRY(assign(target.select(along, i), source.select(along, indices[i])));
  }
  return context.status();
}

// What gather and the scatters have in common: `at` is called for every element of
// the index with its offset in the indexed view (dimension `dim` replaced by the index)
// and in the other one.
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

  template <typename F>
  Status each(const Tensor& index_tensor, F&& at) {
    if (index.numel() == 0) return {};
    Indices indices;
    EDGEWISE_RETURN_IF_ERROR(
        indices.read(index_tensor, indexed.sizes[dim], Indices::Negative::kRefused));
    View::Walk walk(index.sizes);
    for (int64_t i = 0; i < indices.count(); ++i, walk.next()) {
      int64_t from = indices[i] * indexed.strides[dim], to = walk[dim] * other.strides[dim];
      for (size_t d = 0; d < index.sizes.size(); ++d) {
        if (d == dim) continue;
        from += walk[d] * indexed.strides[d];
        to += walk[d] * other.strides[d];
      }
      at(indexed.at(from), other.at(to));
    }
    return {};
  }
};

Status check_same_type(KernelContext& context, const Tensor* a, const Tensor* b) {
  if (a->type() == b->type()) return {};
  return context.fail(Code::kInvalidArgument, "types are equal; got %s and %s",
                      a->describe().c_str(), b->describe().c_str());
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
  const size_t bytes = element_size(self->type());
  return finish(context, along.each(*index, [bytes](std::byte* from, std::byte* to) {
    std::memcpy(to, from, bytes);
  }));
}

Status scatter_src(KernelContext& context) {
  const Tensor* self = context.tensor(0);
  const int64_t dim = context.integer(1);
  const Tensor* index = context.tensor(2);
  const Tensor* source = context.tensor(3);
  Tensor* out = output(context, 4);
  if (!context.ok()) return context.status();
  EDGEWISE_RETURN_IF_ERROR(check_same_type(context, self, out));
  EDGEWISE_RETURN_IF_ERROR(check_same_type(context, self, source));
  EDGEWISE_TRY(copy_to(out, view_of(*self)));
  AlongDim along;
  EDGEWISE_TRY(along.prepare(view_of(*out), view_of(*source), *index, dim));
  const size_t bytes = element_size(self->type());
  return finish(context, along.each(*index, [bytes](std::byte* to, std::byte* from) {
    std::memcpy(to, from, bytes);
  }));
}

Status scatter_value(KernelContext& context) {
  const Tensor* self = context.tensor(0);
  const int64_t dim = context.integer(1);
  const Tensor* index = context.tensor(2);
  const Scalar value = context.scalar(3);
  Tensor* out = output(context, 4);
  if (!context.ok()) return context.status();
  EDGEWISE_RETURN_IF_ERROR(check_same_type(context, self, out));
  EDGEWISE_TRY(copy_to(out, view_of(*self)));
  alignas(8) std::byte element[8];
  View one = view_of(*out);
  one.data = element;
  one.sizes = one.strides = Dims();
  EDGEWISE_TRY(fill(one, value));
  AlongDim along;
  EDGEWISE_TRY(along.prepare(view_of(*out), view_of(*index), *index, dim));
  const size_t bytes = element_size(self->type());
  return finish(context, along.each(*index, [&element, bytes](std::byte* to, std::byte*) {
    std::memcpy(to, element, bytes);
  }));
}

Status scatter_add(KernelContext& context) {
  const Tensor* self = context.tensor(0);
  const int64_t dim = context.integer(1);
  const Tensor* index = context.tensor(2);
  const Tensor* source = context.tensor(3);
  Tensor* out = output(context, 4);
  if (!context.ok()) return context.status();
  EDGEWISE_RETURN_IF_ERROR(check_same_type(context, self, out));
  EDGEWISE_RETURN_IF_ERROR(check_same_type(context, self, source));
  EDGEWISE_TRY(copy_to(out, view_of(*self)));
  AlongDim along;
  EDGEWISE_TRY(along.prepare(view_of(*out), view_of(*source), *index, dim));
  const ScalarType type = self->type();
  return with_compute_type(type, [&](auto c) {
    using C = decltype(c);
    return finish(context, along.each(*index, [type](std::byte* to, std::byte* from) {
      const C sum = wrap_add(load_one<C>(type, to), load_one<C>(type, from));
      store<C>(type, &sum, 1, to, 1);
    }));
  });
}

const KernelRegistration registrations[] = {
    {"aten::embedding.out", 6, embedding},
    {"aten::index_select.out", 4, index_select},
    {"aten::gather.out", 5, gather},
    {"aten::scatter.src_out", 5, scatter_src},
    {"aten::scatter.value_out", 5, scatter_value},
    {"aten::scatter_add.out", 5, scatter_add},
};

}  // namespace
}  // namespace edgewise
