// Tensors in a compute type: kernels with loops of their own (products, normalizations,
// convolutions, pooling) read and write plain arrays of C. Tensors of that type are used
// in place, others are converted.
#pragma once

#include "kernel_status.h"
#include "view.h"

namespace edgewise {
inline namespace HWY_NAMESPACE {

template <typename C>
class ComputeInput {
 public:
  Status read(const View& view, bool row_major = false) {
    strides = view.strides;
    sizes = view.sizes;
    if (view.type == kTypeOf<C> && (!row_major || view.is_row_major())) {
      data = reinterpret_cast<const C*>(view.data);
      return {};
    }
    EDGEWISE_RETURN_IF_ERROR(scratch_.reserve(view.numel()));
    strides = contiguous_strides(sizes);
    data = scratch_.data();
    return assign({reinterpret_cast<std::byte*>(scratch_.data()), kTypeOf<C>, sizes, strides},
                  view);
  }

  View view() const {
    return {const_cast<std::byte*>(reinterpret_cast<const std::byte*>(data)), kTypeOf<C>, sizes,
            strides};
  }

  const C* data = nullptr;
  Dims sizes, strides;

 private:
  Scratch<C> scratch_;
};

// Write through data and strides, then call finish().
template <typename C>
class ComputeOutput {
 public:
  Status prepare(const View& view, bool row_major = false) {
    target_ = view;
    strides = view.strides;
    sizes = view.sizes;
    direct_ = view.type == kTypeOf<C> && (!row_major || view.is_row_major());
    if (direct_) {
      data = reinterpret_cast<C*>(view.data);
      return {};
    }
    EDGEWISE_RETURN_IF_ERROR(scratch_.reserve(view.numel()));
    strides = contiguous_strides(sizes);
    data = scratch_.data();
    return {};
  }

  Status finish() {
    if (direct_) return {};
    return assign(target_,
                  {reinterpret_cast<std::byte*>(scratch_.data()), kTypeOf<C>, sizes, strides});
  }

  C* data = nullptr;
  Dims sizes, strides;

 private:
  View target_;
  Scratch<C> scratch_;
  bool direct_ = false;
};

inline Status check_floating(KernelContext& context, const Tensor* tensor) {
  if (is_floating(tensor->type())) return {};
  return context.fail(Code::kInvalidArgument, "takes floating tensors; got %s",
                      tensor->describe().c_str());
}

}  // namespace HWY_NAMESPACE
}  // namespace edgewise
