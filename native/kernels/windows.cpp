#include "windows.h"

namespace edgewise {
inline namespace HWY_NAMESPACE {

Status set_spatial(Triple& target, size_t spatial, int64_t least,
                   const std::vector<int64_t>& values, const char* name) {
  bool fits = values.size() == spatial || values.size() == 1;
  for (int64_t value : values) fits = fits && value >= least && value < kSpatialLimit;
  if (!fits) {
    return error(Code::kInvalidArgument,
                 "%s has a number of at least %lld for each dimension; got %s", name,
                 static_cast<long long>(least), describe(values).c_str());
  }
  for (size_t dim = 0; dim < spatial; ++dim) {
    target[3 - spatial + dim] = values.size() == 1 ? values[0] : values[dim];
  }
  return {};
}

View spatial_view(View view, size_t spatial) {
  if (view.sizes.size() == spatial + 1) {
    view.sizes.insert(0, 1);
    view.strides.insert(0, 0);
  }
  while (view.sizes.size() < 5) {
    view.sizes.insert(2, 1);
    view.strides.insert(2, 0);
  }
  return view;
}

Status check_image(const Tensor& self, size_t spatial, const Tensor& other) {
  bool fits = (self.rank() == spatial + 1 || self.rank() == spatial + 2) &&
              is_computable(self.type()) && other.type() == self.type();
  for (int64_t size : self.sizes()) fits = fits && size < kSpatialLimit;
  if (fits) return {};
  return error(Code::kInvalidArgument,
               "takes numbers [C, ...] or [N, C, ...] with %zu more dimensions, and another tensor "
               "of their type; got %s and %s",
               spatial, self.describe().c_str(), other.describe().c_str());
}

Dims with_spatial(const Tensor& self, size_t spatial, const Triple& sizes) {
  Dims result(self.sizes());
  for (size_t dim = 0; dim < spatial; ++dim) {
    result[self.rank() - spatial + dim] = sizes[3 - spatial + dim];
  }
  return result;
}

Status Windows::slide(KernelContext& context, size_t index, const Tensor& self, size_t spatial,
                      bool dilated, bool ceil_mode) {
  const std::vector<int64_t> sizes = context.int_list(index), pads = context.int_list(index + 2);
  const std::vector<int64_t> gaps = dilated ? context.int_list(index + 3) : std::vector<int64_t>{1};
  std::vector<int64_t> steps = context.int_list(index + 1);
  if (!context.ok()) return context.status();
  if (steps.empty()) steps = sizes;
  EDGEWISE_RETURN_IF_ERROR(set_spatial(kernel_, spatial, 1, sizes, "kernel_size"));
  EDGEWISE_RETURN_IF_ERROR(set_spatial(stride_, spatial, 1, steps, "stride"));
  EDGEWISE_RETURN_IF_ERROR(set_spatial(padding_, spatial, 0, pads, "padding"));
  EDGEWISE_RETURN_IF_ERROR(set_spatial(dilation_, spatial, 1, gaps, "dilation"));
  for (size_t dim = 3 - spatial; dim < 3; ++dim) {
    in[dim] = self.size(self.rank() - 3 + dim);
    const int64_t reach = dilation_[dim] * (kernel_[dim] - 1);
    const int64_t room = in[dim] + 2 * padding_[dim] - reach - 1;
    // In ceil_mode a window may begin inside and reach past the end.
    const int64_t more = ceil_mode ? stride_[dim] - 1 : 0;
    if (padding_[dim] > (reach + 1) / 2 || room + more < 0) {
      return error(Code::kInvalidArgument,
                   "the window fits into the padded image, and padding is at most half of it; "
                   "got %s, kernel %lld, padding %lld",
                   self.describe().c_str(), static_cast<long long>(kernel_[dim]),
                   static_cast<long long>(padding_[dim]));
    }
    out[dim] = (room + more) / stride_[dim] + 1;
    // No window starts beyond the image and its padding.
    if (ceil_mode && (out[dim] - 1) * stride_[dim] >= in[dim] + padding_[dim]) --out[dim];
  }
  return {};
}

Status Windows::adapt(const Tensor& self, size_t spatial, const std::vector<int64_t>& output_size) {
  EDGEWISE_RETURN_IF_ERROR(set_spatial(out, spatial, 0, output_size, "output_size"));
  for (size_t dim = 3 - spatial; dim < 3; ++dim) {
    in[dim] = self.size(self.rank() - 3 + dim);
    if (in[dim] == 0 && out[dim] > 0) {
      return error(Code::kInvalidArgument, "an image has pixels; got %s", self.describe().c_str());
    }
  }
  adaptive_ = true;
  return {};
}

Status Windows::build() {
  for (size_t dim = 0; dim < 3; ++dim) {
    EDGEWISE_RETURN_IF_ERROR(spans[dim].reserve(out[dim]));
    for (int64_t i = 0; i < out[dim]; ++i) {
      Span& span = spans[dim][i];
      span = Span();
      if (adaptive_) {
        span.first = i * in[dim] / out[dim];
        span.last = ((i + 1) * in[dim] - 1) / out[dim] + 1;
        span.padded = span.last - span.first;
        continue;
      }
      const int64_t begin = i * stride_[dim] - padding_[dim];
      const int64_t end = begin + dilation_[dim] * (kernel_[dim] - 1) + 1;
      span.step = dilation_[dim];
      span.padded = std::min(end, in[dim] + padding_[dim]) - begin;
      span.first = begin < 0 ? begin + (-begin + span.step - 1) / span.step * span.step : begin;
      span.last = std::min(end, in[dim]);
    }
  }
  return {};
}

}  // namespace HWY_NAMESPACE
}  // namespace edgewise
