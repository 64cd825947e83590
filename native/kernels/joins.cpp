// Operators with several parts: cat, stack, split, unbind, scatters of slices. Each part is a view
// of the input copied to a view of the output.
#include <string>
#include <vector>

#include "cpu_dispatch.h"
#include "kernel_status.h"
#include "view.h"

namespace edgewise {
inline namespace HWY_NAMESPACE {
namespace {

// cat skips tensors of shape [0], whatever the others' rank.
bool is_skipped(const Tensor& tensor) { return tensor.rank() == 1 && tensor.numel() == 0; }

Status cat(KernelContext& context) {
  const std::vector<const Tensor*> tensors = context.tensor_list(0);
  int64_t dim = context.integer(1);
  Tensor* out = output(context, 2);
  if (!context.ok()) return context.status();
  const Tensor* first = nullptr;
  Dims sizes;
  int64_t total = 0;
  for (const Tensor* tensor : tensors) {
    if (!tensor) return context.fail(Code::kInvalidArgument, "takes tensors; got None");
    if (tensor->rank() == 0) {
      return context.fail(Code::kInvalidArgument, "tensors have dimensions; got one without");
    }
    if (is_skipped(*tensor)) continue;
    if (!first) {
      first = tensor;
      sizes = Dims(tensor->sizes());
      EDGEWISE_TRY(normalize_dim(dim, tensor->rank()));
    }
    bool fits = tensor->rank() == sizes.size();
    for (size_t i = 0; fits && i < sizes.size(); ++i) {
      fits = static_cast<int64_t>(i) == dim || sizes[i] == tensor->size(i);
    }
    if (!fits || __builtin_add_overflow(total, tensor->size(static_cast<size_t>(dim)), &total)) {
      return context.fail(
          Code::kInvalidArgument, "shapes are equal except along dimension %lld; got %s and %s",
          static_cast<long long>(dim), first->describe().c_str(), tensor->describe().c_str());
    }
  }
  if (!first) {
    if (tensors.empty()) return context.fail(Code::kInvalidArgument, "takes a tensor; got none");
    return finish(context, copy_to(out, view_of(*tensors.front())));
  }
  const size_t along = static_cast<size_t>(dim);
  sizes[along] = total;
  EDGEWISE_TRY(out->resize(sizes));
  int64_t start = 0;
  for (const Tensor* tensor : tensors) {
    if (is_skipped(*tensor)) continue;
    const int64_t size = tensor->size(along);
    EDGEWISE_TRY(assign(view_of(*out).narrow(along, start, size), view_of(*tensor)));
    start += size;
  }
  return context.status();
}

Status stack(KernelContext& context) {
  const std::vector<const Tensor*> tensors = context.tensor_list(0);
  int64_t dim = context.integer(1);
  Tensor* out = output(context, 2);
  if (!context.ok()) return context.status();
  if (tensors.empty() || !tensors.front()) {
    return context.fail(Code::kInvalidArgument, "takes tensors; got none");
  }
  const Tensor& first = *tensors.front();
  if (first.rank() >= kMaxDims) {
    return context.fail(Code::kUnsupported, "a tensor has at most %zu dimensions; got one more",
                        kMaxDims);
  }
  EDGEWISE_TRY(normalize_dim(dim, first.rank() + 1));
  Dims sizes(first.sizes());
  sizes.insert(static_cast<size_t>(dim), static_cast<int64_t>(tensors.size()));
  EDGEWISE_TRY(out->resize(sizes));
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (!tensors[i]) return context.fail(Code::kInvalidArgument, "takes tensors; got None");
    EDGEWISE_TRY(assign(view_of(*out).select(static_cast<size_t>(dim), static_cast<int64_t>(i)),
                        view_of(*tensors[i])));
  }
  return context.status();
}

Status out_list(KernelContext& context, size_t index, std::vector<Tensor*>& outs) {
  Value* value = context.value(index);
  if (!context.ok()) return context.status();
  const TensorList* list = value->get<TensorList>();
  if (!list) {
    return context.fail(Code::kInvalidProgram, "argument %zu is a list of output tensors; got %s",
                        index, std::string(value->kind()).c_str());
  }
  for (Value* item : list->items) {
    Tensor* tensor = item ? item->get<Tensor>() : nullptr;
    if (!tensor) {
      return context.fail(Code::kInvalidProgram,
                          "argument %zu lists output tensors; got another value", index);
    }
    for (size_t i = 0; i < index; ++i) {
      if (context.value(i) != item) continue;
      return context.fail(Code::kInvalidProgram,
                          "argument %zu lists a tensor that is an input, too", index);
    }
    outs.push_back(tensor);
  }
  return {};
}

// Parts of `sizes` along `dim`, one after the other, to `outs`.
Status split(KernelContext& context, const Tensor* self, int64_t dim,
             const std::vector<int64_t>& sizes, const std::vector<Tensor*>& outs) {
  const View view = view_of(*self);
  EDGEWISE_TRY(check_has_dims(view));
  EDGEWISE_TRY(normalize_dim(dim, self->rank()));
  const size_t along = static_cast<size_t>(dim);
  int64_t rest = self->size(along);
  bool fits = sizes.size() == outs.size();
  for (int64_t size : sizes) {
    fits = fits && size >= 0 && size <= rest;
    rest -= fits ? size : 0;
  }
  if (!fits || rest != 0) {
    return context.fail(Code::kInvalidArgument,
                        "parts make up dimension %lld of %s, one for each of %zu outputs; got %s",
                        static_cast<long long>(dim), self->describe().c_str(), outs.size(),
                        describe(sizes).c_str());
  }
  int64_t start = 0;
  for (size_t i = 0; i < outs.size(); ++i) {
    EDGEWISE_TRY(copy_to(outs[i], view.narrow(along, start, sizes[i])));
    start += sizes[i];
  }
  return context.status();
}

Status split_with_sizes(KernelContext& context) {
  const Tensor* self = context.tensor(0);
  const std::vector<int64_t> sizes = context.int_list(1);
  const int64_t dim = context.integer(2);
  std::vector<Tensor*> outs;
  if (!context.ok()) return context.status();
  EDGEWISE_RETURN_IF_ERROR(out_list(context, 3, outs));
  return split(context, self, dim, sizes, outs);
}

Status split_copy(KernelContext& context) {
  const Tensor* self = context.tensor(0);
  const int64_t size = context.integer(1);
  int64_t dim = context.integer(2);
  std::vector<Tensor*> outs;
  if (!context.ok()) return context.status();
  EDGEWISE_RETURN_IF_ERROR(out_list(context, 3, outs));
  EDGEWISE_TRY(check_has_dims(view_of(*self)));
  EDGEWISE_TRY(normalize_dim(dim, self->rank()));
  const int64_t whole = self->size(static_cast<size_t>(dim));
  const int64_t count = size > 0 ? (whole > 0 ? (whole - 1) / size + 1 : 1) : whole == 0 ? 1 : -1;
  if (size < 0 || count != static_cast<int64_t>(outs.size())) {
    return context.fail(Code::kInvalidArgument, "parts of %lld make up %s; got %zu outputs",
                        static_cast<long long>(size), self->describe().c_str(), outs.size());
  }
  std::vector<int64_t> sizes(outs.size(), size);
  sizes.back() = whole - size * (count - 1);
  return split(context, self, dim, sizes, outs);
}

Status unbind_copy(KernelContext& context) {
  const Tensor* self = context.tensor(0);
  int64_t dim = context.integer(1);
  std::vector<Tensor*> outs;
  if (!context.ok()) return context.status();
  EDGEWISE_RETURN_IF_ERROR(out_list(context, 2, outs));
  const View view = view_of(*self);
  EDGEWISE_TRY(check_has_dims(view));
  EDGEWISE_TRY(normalize_dim(dim, self->rank()));
  const size_t along = static_cast<size_t>(dim);
  if (self->size(along) != static_cast<int64_t>(outs.size())) {
    return context.fail(Code::kInvalidArgument, "one output for each index of %s; got %zu outputs",
                        self->describe().c_str(), outs.size());
  }
  for (size_t i = 0; i < outs.size(); ++i) {
    EDGEWISE_TRY(copy_to(outs[i], view.select(along, static_cast<int64_t>(i))));
  }
  return context.status();
}

// The output is self with a part replaced by `source`.
Status replace(KernelContext& context, const Tensor* self, const Tensor* source, Tensor* out,
               Status (*cut)(KernelContext&, View&)) {
  EDGEWISE_TRY(start_from(*self, out));
  View part = view_of(*out);
  EDGEWISE_TRY(cut(context, part));
  return finish(context, assign(part, view_of(*source)));
}

Status slice_scatter(KernelContext& context) {
  const Tensor* self = context.tensor(0);
  const Tensor* source = context.tensor(1);
  Tensor* out = output(context, 6, kSelf);
  if (!context.ok()) return context.status();
  return replace(context, self, source, out, [](KernelContext& c, View& part) {
    const int64_t dim = c.integer(2), step = c.integer(5);
    const auto start = c.optional_integer(3), end = c.optional_integer(4);
    return c.ok() ? slice(part, dim, start, end, step) : c.status();
  });
}

Status select_scatter(KernelContext& context) {
  const Tensor* self = context.tensor(0);
  const Tensor* source = context.tensor(1);
  Tensor* out = output(context, 4, kSelf);
  if (!context.ok()) return context.status();
  return replace(context, self, source, out, [](KernelContext& c, View& part) {
    const int64_t dim = c.integer(2), index = c.integer(3);
    return c.ok() ? select(part, dim, index) : c.status();
  });
}

constexpr KernelEntry kKernels[] = {
    {"aten::cat.out", 3, cat},
    {"aten::stack.out", 3, stack},
    {"aten::split_copy.Tensor_out", 4, split_copy},
    {"aten::split_with_sizes_copy.out", 4, split_with_sizes},
    {"aten::unbind_copy.int_out", 3, unbind_copy},
    {"aten::slice_scatter.out", 7, slice_scatter},
    {"aten::select_scatter.out", 5, select_scatter},
};
const KernelTable table(kEveryLevel, kSelected<kKernels>);

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace edgewise
