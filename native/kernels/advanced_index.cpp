// Indexing by lists of tensors, as in x[i, :, mask]: index, index_put; and nonzero.
#include <cstring>
#include <vector>

#include "indices.h"
#include "kernel_status.h"
#include "view.h"

namespace edgewise {
inline namespace HWY_NAMESPACE {
namespace {

// Positions of a mask's true elements: `rank` coordinates for each, in row-major order.
Status find_true(const Tensor& mask, Scratch<int64_t>& coordinates, int64_t& count) {
  const int64_t rank = static_cast<int64_t>(mask.rank()), numel = mask.numel();
  const View view = view_of(mask);
  Scratch<uint8_t> chosen;
  EDGEWISE_RETURN_IF_ERROR(chosen.reserve(numel));
  EDGEWISE_RETURN_IF_ERROR(assign({reinterpret_cast<std::byte*>(chosen.data()), ScalarType::kBool,
                                   view.sizes, contiguous_strides(view.sizes)},
                                  view));
  count = 0;
  for (int64_t i = 0; i < numel; ++i) count += chosen[i] != 0;
  EDGEWISE_RETURN_IF_ERROR(coordinates.reserve(count * rank));
  if (count == 0 || rank == 0) return {};
  // Row by row; the coordinates before the last are those of the row.
  const int64_t width = mask.size(mask.rank() - 1);
  Dims rows = view.sizes;
  rows.erase(mask.rank() - 1);
  View::Walk walk(rows);
  int64_t* to = coordinates.data();
  for (int64_t start = 0; start < numel; start += width, walk.next()) {
    for (int64_t i = 0; i < width; ++i) {
      if (!chosen[start + i]) continue;
      for (size_t d = 0; d < rows.size(); ++d) *to++ = walk[d];
      *to++ = i;
    }
  }
  return {};
}

// The elements of a tensor that a list of indices is about.
class Selection {
 public:
  Status build(const View& self, std::span<const Tensor* const> list);

  const Dims& shape() const { return shape_; }

  // Calls at.one(offset in self, offset in `result`) for elements and at.run(offset in self, step,
  // offset in `result`, step, count) for runs of them; the result has the selection's shape.
  template <typename F>
  void each(const View& result, F&& at) const {
    // Of the result's dimensions, those of the index count through the table of offsets,
    // the others go on in self.
    const Dims counting = contiguous_strides(index_sizes_);
    Dims table, onward;
    for (size_t d = 0, rest = 0; d < shape_.size(); ++d) {
      const bool indexed = d >= result_dim_ && d < result_dim_ + index_sizes_.size();
      table.push(indexed ? counting[d - result_dim_] : 0);
      onward.push(indexed ? 0 : rest_.strides[rest++]);
    }
    const Loop<3> loop(shape_, {&result.strides, &table, &onward});
    loop.run([&](const auto& offsets, int64_t count, const auto& steps) {
      if (steps[1] == 0) {
        at.run(offsets_[offsets[1]] + offsets[2], steps[2], offsets[0], steps[0], count);
        return;
      }
      const int64_t* element_offsets = offsets_.data() + offsets[1];
      const bool plain = steps[0] == 1 && steps[1] == 1 && steps[2] == 0;
      if (plain && has_runs_) {
        for (int64_t i = 0, n = 0; i < count; i += n) {
          n = std::min(runs_[offsets[1] + i], count - i);
          if (n == 1) {
            at.one(element_offsets[i] + offsets[2], offsets[0] + i);
          } else {
            at.run(element_offsets[i] + offsets[2], 1, offsets[0] + i, 1, n);
          }
        }
        return;
      }
      if (plain) {
        for (int64_t i = 0; i < count; ++i) at.one(element_offsets[i] + offsets[2], offsets[0] + i);
        return;
      }
      for (int64_t i = 0; i < count; ++i) {
        at.one(element_offsets[i * steps[1]] + offsets[2] + i * steps[2],
               offsets[0] + i * steps[0]);
      }
    });
  }

 private:
  struct Index {  // of one dimension of self
    size_t dim = 0;
    Scratch<int64_t> values;
    int64_t step = 1;  // between values
    Dims sizes, strides;
  };

  Status add_mask(const View& self, const Tensor& mask, size_t& dim);
  Status add_integers(const View& self, const Tensor& tensor, size_t& dim);

  std::array<Index, kMaxDims> indices_;
  size_t index_count_ = 0;
  Dims index_sizes_;  // all indices broadcast
  Dims shape_;
  View rest_;              // self without the indexed dimensions
  size_t result_dim_ = 0;  // of index_sizes_ in shape_
  Scratch<int64_t> offsets_;
  int64_t count_ = 0;
  // Where offsets mostly follow one another: how many do from each on.
  bool has_runs_ = false;
  Scratch<int64_t> runs_;
};

Status too_many(const View& self) {
  return error(Code::kInvalidArgument,
               "there are as many indices as dimensions at most; got more for %s",
               describe(self.sizes).c_str());
}

Status Selection::add_mask(const View& self, const Tensor& mask, size_t& dim) {
  if (mask.rank() == 0) {
    return error(Code::kUnsupported, "a mask has dimensions; got %s", mask.describe().c_str());
  }
  if (dim + mask.rank() > self.sizes.size()) return too_many(self);
  for (size_t d = 0; d < mask.rank(); ++d) {
    if (mask.size(d) != self.sizes[dim + d]) {
      return error(Code::kInvalidArgument, "a mask has the sizes of what it indexes; got %s for %s",
                   mask.describe().c_str(), describe(self.sizes).c_str());
    }
  }
  const size_t first = index_count_;
  int64_t count = 0;
  EDGEWISE_RETURN_IF_ERROR(find_true(mask, indices_[first].values, count));
  const int64_t rank = static_cast<int64_t>(mask.rank());
  // Coordinates of one dimension each; the last to be filled holds all of them.
  for (size_t d = mask.rank(); d-- > 0;) {
    Index& index = indices_[first + d];
    if (d > 0) {
      EDGEWISE_RETURN_IF_ERROR(index.values.reserve(count));
      for (int64_t i = 0; i < count; ++i) {
        index.values[i] = indices_[first].values[i * rank + static_cast<int64_t>(d)];
      }
    }
    index.step = d > 0 ? 1 : rank;
    index.dim = dim + d;
    index.sizes.push(count);
    index.strides.push(index.step);
  }
  index_count_ += mask.rank();
  dim += mask.rank();
  return broadcast(std::array{count}, index_sizes_);
}

Status Selection::add_integers(const View& self, const Tensor& tensor, size_t& dim) {
  if (dim >= self.sizes.size()) return too_many(self);
  Index& index = indices_[index_count_++];
  Indices values;
  EDGEWISE_RETURN_IF_ERROR(values.read(tensor, self.sizes[dim], Indices::Negative::kFromEnd));
  EDGEWISE_RETURN_IF_ERROR(index.values.reserve(values.count()));
  for (int64_t i = 0; i < values.count(); ++i) index.values[i] = values[i];
  index.dim = dim++;
  index.sizes = Dims(tensor.sizes());
  index.strides = contiguous_strides(index.sizes);
  return broadcast(tensor.sizes(), index_sizes_);
}

Status Selection::build(const View& self, std::span<const Tensor* const> list) {
  size_t dim = 0;
  bool adjacent = true;
  size_t last = 0;
  for (const Tensor* tensor : list) {
    if (!tensor) {
      ++dim;
      continue;
    }
    adjacent = adjacent && (index_count_ == 0 || dim == last);
    const bool is_mask = tensor->type() == ScalarType::kBool || tensor->type() == ScalarType::kByte;
    EDGEWISE_RETURN_IF_ERROR(is_mask ? add_mask(self, *tensor, dim)
                                     : add_integers(self, *tensor, dim));
    last = dim;
  }
  if (dim > self.sizes.size()) return too_many(self);
  if (index_count_ == 0) {
    return error(Code::kInvalidArgument, "at least one index is a tensor; got none");
  }
  rest_ = self;
  for (size_t k = index_count_; k-- > 0;) {
    rest_.sizes.erase(indices_[k].dim);
    rest_.strides.erase(indices_[k].dim);
  }
  // Indices side by side leave their results in place; else these come first.
  result_dim_ = adjacent ? indices_[0].dim : 0;
  std::vector<int64_t> shape(rest_.sizes.span().begin(), rest_.sizes.span().end());
  const std::span<const int64_t> indexed = index_sizes_.span();
  shape.insert(shape.begin() + static_cast<std::ptrdiff_t>(result_dim_), indexed.begin(),
               indexed.end());
  EDGEWISE_RETURN_IF_ERROR(to_sizes(shape, shape_));

  count_ = index_sizes_.product();
  EDGEWISE_RETURN_IF_ERROR(offsets_.reserve(count_));
  for (int64_t j = 0; j < count_; ++j) offsets_[j] = 0;
  for (size_t k = 0; k < index_count_; ++k) {
    const Index& index = indices_[k];
    const View steps =
        View{nullptr, ScalarType::kLong, index.sizes, index.strides}.expand(index_sizes_);
    const Dims counting = contiguous_strides(index_sizes_);
    const int64_t stride = self.strides[index.dim];
    const Loop<2> loop(index_sizes_, {&counting, &steps.strides});
    loop.run([&](const auto& offsets, int64_t count, const auto& by) {
      for (int64_t i = 0; i < count; ++i) {
        offsets_[offsets[0] + i * by[0]] += index.values[offsets[1] + i * by[1]] * stride;
      }
    });
  }
  int64_t breaks = 0;
  for (int64_t j = 1; j < count_; ++j) breaks += offsets_[j] != offsets_[j - 1] + 1;
  has_runs_ = count_ >= 4 * (breaks + 1);
  if (has_runs_) {
    EDGEWISE_RETURN_IF_ERROR(runs_.reserve(count_));
    for (int64_t j = count_; j-- > 0;) {
      const bool goes_on = j + 1 < count_ && offsets_[j + 1] == offsets_[j] + 1;
      runs_[j] = goes_on ? runs_[j + 1] + 1 : 1;
    }
  }
  return {};
}

// Calls f with an integer of `bytes` bytes, as which elements are moved.
template <typename F>
void with_unit(size_t bytes, F&& f) {
  if (bytes == 1) return f(uint8_t{});
  if (bytes == 2) return f(uint16_t{});
  if (bytes == 4) return f(uint32_t{});
  f(uint64_t{});
}

// What each() calls. `offset` is in the indexed tensor, `other` in the one that lies along it.
template <typename Unit, bool kToIndexed>
struct Mover {
  Unit* indexed;
  Unit* along;

  void one(int64_t offset, int64_t other) const {
    if constexpr (kToIndexed)
      indexed[offset] = along[other];
    else
      along[other] = indexed[offset];
  }
  void run(int64_t offset, int64_t step, int64_t other, int64_t other_step, int64_t count) const {
    if (step == 1 && other_step == 1) {
      const Unit* from = kToIndexed ? along + other : indexed + offset;
      Unit* to = kToIndexed ? indexed + offset : along + other;
      std::memmove(to, from, static_cast<size_t>(count) * sizeof(Unit));
    } else {
      for (int64_t i = 0; i < count; ++i) one(offset + i * step, other + i * other_step);
    }
  }
};

template <typename C>
struct Adder {
  const View& target;
  const View& source;

  void one(int64_t offset, int64_t other) const { run(offset, 1, other, 1, 1); }
  void run(int64_t offset, int64_t step, int64_t other, int64_t other_step, int64_t count) const {
    constexpr int64_t kBlock = 256;
    for (int64_t start = 0; start < count; start += kBlock) {
      C sums[kBlock], added[kBlock];
      const int64_t n = std::min(kBlock, count - start);
      std::byte* to = target.at(offset + start * step);
      load<C>(target.type, to, step, n, sums);
      load<C>(source.type, source.at(other + start * other_step), other_step, n, added);
      for (int64_t i = 0; i < n; ++i) sums[i] = wrap_add(sums[i], added[i]);
      store<C>(target.type, sums, n, to, step);
    }
  }
};

// One list of integers, of a tensor that lies in order: no table of offsets is needed.
Status index_along_one(const Tensor& self, std::span<const Tensor* const> list, Tensor* out,
                       bool& is_done) {
  const View source = view_of(self);
  size_t along = list.size();
  for (size_t d = 0; d < list.size(); ++d) {
    if (!list[d]) continue;
    if (along < list.size()) return {};
    along = d;
  }
  if (along >= source.sizes.size() || !source.is_row_major()) return {};
  const Tensor& tensor = *list[along];
  if (tensor.type() != ScalarType::kLong && tensor.type() != ScalarType::kInt) return {};
  Dims shape;
  for (size_t d = 0; d < source.sizes.size(); ++d) {
    if (d != along) {
      shape.push(source.sizes[d]);
      continue;
    }
    if (source.sizes.size() + tensor.rank() > kMaxDims) return {};
    for (const int64_t size : tensor.sizes()) shape.push(size);
  }
  Indices indices;
  EDGEWISE_RETURN_IF_ERROR(indices.read(tensor, source.sizes[along], Indices::Negative::kFromEnd));
  EDGEWISE_RETURN_IF_ERROR(out->resize(shape));
  const View target = view_of(*out);
  if (!target.is_row_major()) return {};
  EDGEWISE_RETURN_IF_ERROR(indices.gather(source, along, indices.count(), target.data));
  is_done = true;
  return {};
}

Status index(KernelContext& context) {
  const Tensor* self = context.tensor(0);
  const std::vector<const Tensor*> list = context.tensor_list(1);
  Tensor* out = output(context, 2);
  if (!context.ok()) return context.status();
  if (out->type() != self->type()) {
    return context.fail(Code::kInvalidArgument, "types are equal; got %s and %s",
                        self->describe().c_str(), out->describe().c_str());
  }
  bool is_done = false;
  EDGEWISE_TRY(index_along_one(*self, list, out, is_done));
  if (is_done) return context.status();
  Selection selection;
  EDGEWISE_TRY(selection.build(view_of(*self), list));
  EDGEWISE_TRY(out->resize(selection.shape()));
  with_unit(element_size(self->type()), [&](auto unit) {
    using Unit = decltype(unit);
    selection.each(view_of(*out), Mover<Unit, false>{reinterpret_cast<Unit*>(view_of(*self).data),
                                                     reinterpret_cast<Unit*>(view_of(*out).data)});
  });
  return context.status();
}

template <size_t kOut>
Status index_put(KernelContext& context) {
  const Tensor* self = context.tensor(0);
  const std::vector<const Tensor*> list = context.tensor_list(1);
  const Tensor* values = context.tensor(2);
  const bool accumulate = context.boolean(3);
  Tensor* out = output(context, kOut, kSelf);
  if (!context.ok()) return context.status();
  if (self->type() != values->type() || self->type() != out->type() ||
      (accumulate && !is_computable(self->type()))) {
    return context.fail(Code::kInvalidArgument, "values have the tensor's type; got %s for %s",
                        values->describe().c_str(), self->describe().c_str());
  }
  // Before anything is written, so that indices cannot change afterwards.
  EDGEWISE_TRY(out->resize(self->sizes()));
  Selection selection;
  EDGEWISE_TRY(selection.build(view_of(*out), list));
  Dims sizes = selection.shape();
  EDGEWISE_TRY(broadcast(values->sizes(), sizes));
  if (!(sizes == selection.shape())) {
    return context.fail(Code::kInvalidArgument, "values broadcast to %s; got %s",
                        describe(selection.shape()).c_str(), values->describe().c_str());
  }
  EDGEWISE_TRY(start_from(*self, out));
  const View source = view_of(*values).expand(sizes);
  const View target = view_of(*out);
  if (!accumulate) {
    with_unit(element_size(self->type()), [&](auto unit) {
      using Unit = decltype(unit);
      selection.each(source, Mover<Unit, true>{reinterpret_cast<Unit*>(target.data),
                                               reinterpret_cast<Unit*>(source.data)});
    });
    return context.status();
  }
  with_short_compute_type(target.type, [&](auto c) {
    selection.each(source, Adder<decltype(c)>{target, source});
  });
  return context.status();
}

Status nonzero(KernelContext& context) {
  const Tensor* self = context.tensor(0);
  Tensor* out = output(context, 1);
  if (!context.ok()) return context.status();
  if (!is_computable(self->type()) || out->type() != ScalarType::kLong) {
    return context.fail(Code::kInvalidArgument, "gives int64 for numbers or bools; got %s to %s",
                        self->describe().c_str(), out->describe().c_str());
  }
  Scratch<int64_t> coordinates;
  int64_t count = 0;
  EDGEWISE_TRY(find_true(*self, coordinates, count));
  const std::array sizes{count, static_cast<int64_t>(self->rank())};
  EDGEWISE_TRY(out->resize(sizes));
  const View source{reinterpret_cast<std::byte*>(coordinates.data()), ScalarType::kLong,
                    Dims(sizes), contiguous_strides(Dims(sizes))};
  return finish(context, assign(view_of(*out), source));
}

constexpr KernelEntry kKernels[] = {
    {"aten::index.Tensor_out", 3, index},
    {"aten::index_put.out", 5, index_put<4>},
    {"aten::index_put_", 4, index_put<0>},
    {"aten::nonzero.out", 2, nonzero},
};
const KernelTable table(HWY_TARGET, kSelected<kKernels>);

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace edgewise
