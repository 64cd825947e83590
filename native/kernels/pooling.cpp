// Average, maximum and adaptive average pooling in two dimensions.
#include <cmath>
#include <limits>

#include "compute_tensor.h"

namespace edgewise {
namespace {

// As [N, C, H, W], also for tensors without N.
View image_view(const Tensor& tensor) {
  View view = view_of(tensor);
  if (view.sizes.size() == 3) {
    view.sizes.insert(0, 1);
    view.strides.insert(0, 0);
  }
  return view;
}

struct Window {
  std::array<int64_t, 2> kernel, stride, padding{0, 0}, dilation{1, 1};
  std::array<int64_t, 2> in, out;
};

constexpr int64_t kLimit = int64_t{1} << 30;

Status set_pair(std::array<int64_t, 2>& target, const std::vector<int64_t>& values, int64_t least,
                const char* name) {
  bool fits = values.size() == 1 || values.size() == 2;
  for (int64_t value : values) fits = fits && value >= least && value < kLimit;
  if (!fits) {
    return error(Code::kInvalidArgument, "%s is one or two numbers of at least %lld; got %s", name,
                 static_cast<long long>(least), describe(values).c_str());
  }
  target = {values.front(), values.back()};
  return {};
}

Status check_image(KernelContext& context, const Tensor* self, const Tensor* out) {
  EDGEWISE_RETURN_IF_ERROR(check_floating(context, self));
  if ((self->rank() != 3 && self->rank() != 4) || out->type() != self->type()) {
    return context.fail(Code::kInvalidArgument,
                        "takes [C, H, W] or [N, C, H, W], with an output of its type; got %s to %s",
                        self->describe().c_str(), out->describe().c_str());
  }
  return {};
}

Dims with_image(const Tensor& self, const std::array<int64_t, 2>& image) {
  Dims sizes(self.sizes());
  sizes[sizes.size() - 2] = image[0];
  sizes[sizes.size() - 1] = image[1];
  return sizes;
}

// Reads kernel_size, stride, padding from argument 1 on.
Status read_window(KernelContext& context, const Tensor* self, const std::vector<int64_t>& dilation,
                   bool ceil_mode, Window& w) {
  const std::vector<int64_t> kernel = context.int_list(1), padding = context.int_list(3);
  std::vector<int64_t> stride = context.int_list(2);
  if (!context.ok()) return context.status();
  if (stride.empty()) stride = kernel;
  EDGEWISE_TRY(set_pair(w.kernel, kernel, 1, "kernel_size"));
  EDGEWISE_TRY(set_pair(w.stride, stride, 1, "stride"));
  EDGEWISE_TRY(set_pair(w.padding, padding, 0, "padding"));
  EDGEWISE_TRY(set_pair(w.dilation, dilation, 1, "dilation"));
  for (size_t dim = 0; dim < 2; ++dim) {
    w.in[dim] = self->size(self->rank() - 2 + dim);
    const int64_t room = w.in[dim] + 2 * w.padding[dim] - w.dilation[dim] * (w.kernel[dim] - 1) - 1;
    if (w.padding[dim] > w.kernel[dim] / 2 || w.in[dim] >= kLimit || room < 0) {
      return context.fail(
          Code::kInvalidArgument,
          "the window fits into the padded image, and padding is at most half of it; "
          "got %s, kernel %lld, padding %lld",
          self->describe().c_str(), static_cast<long long>(w.kernel[dim]),
          static_cast<long long>(w.padding[dim]));
    }
    w.out[dim] = (room + (ceil_mode ? w.stride[dim] - 1 : 0)) / w.stride[dim] + 1;
    // No window starts beyond the image and its padding.
    if (ceil_mode && (w.out[dim] - 1) * w.stride[dim] >= w.in[dim] + w.padding[dim]) --w.out[dim];
  }
  return {};
}

// Calls f(plane of the input, plane of the output, number of the plane).
template <typename C, typename F>
void for_planes(const ComputeInput<C>& x, const ComputeOutput<C>& y, F&& f) {
  for (int64_t n = 0; n < x.sizes[0]; ++n) {
    for (int64_t c = 0; c < x.sizes[1]; ++c) {
      f(x.data + n * x.strides[0] + c * x.strides[1], y.data + n * y.strides[0] + c * y.strides[1],
        n * x.sizes[1] + c);
    }
  }
}

template <typename C>
C window_sum(const C* plane, const Dims& strides, int64_t h0, int64_t h1, int64_t w0, int64_t w1) {
  C sum = 0;
  for (int64_t h = h0; h < h1; ++h) {
    for (int64_t w = w0; w < w1; ++w) sum += plane[h * strides[2] + w * strides[3]];
  }
  return sum;
}

Status avg_pool(KernelContext& context) {
  const Tensor* self = context.tensor(0);
  const bool ceil_mode = context.boolean(4), count_padding = context.boolean(5);
  const std::optional<int64_t> divisor = context.optional_integer(6);
  Tensor* out = output(context, 7);
  if (!context.ok()) return context.status();
  EDGEWISE_RETURN_IF_ERROR(check_image(context, self, out));
  Window w;
  EDGEWISE_RETURN_IF_ERROR(read_window(context, self, {1}, ceil_mode, w));
  if (divisor && *divisor == 0) {
    return context.fail(Code::kInvalidArgument, "divisor_override is not zero; got 0");
  }
  EDGEWISE_TRY(out->resize(with_image(*self, w.out)));
  if (out->numel() == 0) return context.status();
  return with_floating_type(self->type(), [&](auto c) -> Status {
    using C = decltype(c);
    ComputeInput<C> x;
    ComputeOutput<C> y;
    EDGEWISE_TRY(x.read(image_view(*self)));
    EDGEWISE_TRY(y.prepare(image_view(*out)));
    for_planes(x, y, [&](const C* from, C* to, int64_t) {
      for (int64_t oh = 0; oh < w.out[0]; ++oh) {
        for (int64_t ow = 0; ow < w.out[1]; ++ow) {
          int64_t h0 = oh * w.stride[0] - w.padding[0], w0 = ow * w.stride[1] - w.padding[1];
          int64_t h1 = std::min(h0 + w.kernel[0], w.in[0] + w.padding[0]);
          int64_t w1 = std::min(w0 + w.kernel[1], w.in[1] + w.padding[1]);
          const int64_t padded = (h1 - h0) * (w1 - w0);
          h0 = std::max<int64_t>(h0, 0), w0 = std::max<int64_t>(w0, 0);
          h1 = std::min(h1, w.in[0]), w1 = std::min(w1, w.in[1]);
          const int64_t inside = h0 < h1 && w0 < w1 ? (h1 - h0) * (w1 - w0) : 0;
          const int64_t count = divisor ? *divisor : count_padding ? padded : inside;
          const C sum = inside ? window_sum(from, x.strides, h0, h1, w0, w1) : C(0);
          to[oh * y.strides[2] + ow * y.strides[3]] = inside ? sum / static_cast<C>(count) : C(0);
        }
      }
    });
    return finish(context, y.finish());
  });
}

Status max_pool(KernelContext& context) {
  const Tensor* self = context.tensor(0);
  const std::vector<int64_t> dilation = context.int_list(4);
  const bool ceil_mode = context.boolean(5);
  Tensor* out = output(context, 6);
  Tensor* indices = output(context, 7);
  if (!context.ok()) return context.status();
  EDGEWISE_RETURN_IF_ERROR(check_image(context, self, out));
  if (indices->type() != ScalarType::kLong) {
    return context.fail(Code::kInvalidArgument, "indices are int64; got %s",
                        indices->describe().c_str());
  }
  Window w;
  EDGEWISE_RETURN_IF_ERROR(read_window(context, self, dilation, ceil_mode, w));
  const Dims sizes = with_image(*self, w.out);
  EDGEWISE_TRY(out->resize(sizes));
  EDGEWISE_TRY(indices->resize(sizes));
  if (out->numel() == 0) return context.status();
  return with_floating_type(self->type(), [&](auto c) -> Status {
    using C = decltype(c);
    ComputeInput<C> x;
    ComputeOutput<C> y;
    EDGEWISE_TRY(x.read(image_view(*self)));
    EDGEWISE_TRY(y.prepare(image_view(*out)));
    const View places = image_view(*indices);
    for_planes(x, y, [&](const C* from, C* to, int64_t plane) {
      int64_t* place = indices->data<int64_t>() + plane / x.sizes[1] * places.strides[0] +
                       plane % x.sizes[1] * places.strides[1];
      for (int64_t oh = 0; oh < w.out[0]; ++oh) {
        for (int64_t ow = 0; ow < w.out[1]; ++ow) {
          C best = -std::numeric_limits<C>::infinity();
          int64_t best_at = -1;
          for (int64_t kh = 0; kh < w.kernel[0]; ++kh) {
            const int64_t h = oh * w.stride[0] - w.padding[0] + kh * w.dilation[0];
            if (h < 0 || h >= w.in[0]) continue;
            for (int64_t kw = 0; kw < w.kernel[1]; ++kw) {
              const int64_t v = ow * w.stride[1] - w.padding[1] + kw * w.dilation[1];
              if (v < 0 || v >= w.in[1]) continue;
              const C value = from[h * x.strides[2] + v * x.strides[3]];
              if (best_at < 0 || value > best || value != value) {
                best = value;
                best_at = h * w.in[1] + v;
              }
            }
          }
          to[oh * y.strides[2] + ow * y.strides[3]] = best;
          place[oh * places.strides[2] + ow * places.strides[3]] = std::max<int64_t>(best_at, 0);
        }
      }
    });
    return finish(context, y.finish());
  });
}

Status adaptive_avg_pool(KernelContext& context) {
  const Tensor* self = context.tensor(0);
  const std::vector<int64_t> wanted = context.int_list(1);
  Tensor* out = output(context, 2);
  if (!context.ok()) return context.status();
  EDGEWISE_RETURN_IF_ERROR(check_image(context, self, out));
  std::array<int64_t, 2> size;
  EDGEWISE_TRY(set_pair(size, wanted, 0, "output_size"));
  EDGEWISE_TRY(out->resize(with_image(*self, size)));
  if (out->numel() == 0) return context.status();
  const int64_t height = self->size(self->rank() - 2), width = self->size(self->rank() - 1);
  if (height == 0 || width == 0 || height >= kLimit || width >= kLimit) {
    return context.fail(Code::kInvalidArgument, "an image has pixels; got %s",
                        self->describe().c_str());
  }
  return with_floating_type(self->type(), [&](auto c) -> Status {
    using C = decltype(c);
    ComputeInput<C> x;
    ComputeOutput<C> y;
    EDGEWISE_TRY(x.read(image_view(*self)));
    EDGEWISE_TRY(y.prepare(image_view(*out)));
    for_planes(x, y, [&](const C* from, C* to, int64_t) {
      for (int64_t oh = 0; oh < size[0]; ++oh) {
        const int64_t h0 = oh * height / size[0], h1 = ((oh + 1) * height - 1) / size[0] + 1;
        for (int64_t ow = 0; ow < size[1]; ++ow) {
          const int64_t w0 = ow * width / size[1], w1 = ((ow + 1) * width - 1) / size[1] + 1;
          to[oh * y.strides[2] + ow * y.strides[3]] =
              window_sum(from, x.strides, h0, h1, w0, w1) / static_cast<C>((h1 - h0) * (w1 - w0));
        }
      }
    });
    return finish(context, y.finish());
  });
}

const KernelRegistration registrations[] = {
    {"aten::avg_pool2d.out", 8, avg_pool},
    {"aten::max_pool2d_with_indices.out", 8, max_pool},
    {"aten::_adaptive_avg_pool2d.out", 3, adaptive_avg_pool},
};

}  // namespace
}  // namespace edgewise
