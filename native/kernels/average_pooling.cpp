// Averages over windows, those of given sizes and adaptive ones, and their gradients.
#include "windows.h"

namespace edgewise {
inline namespace HWY_NAMESPACE {
namespace {

// How many elements a window's sum is divided by.
struct Divisor {
  std::optional<int64_t> fixed;
  bool count_padding = false;

  template <typename C>
  C divide(C sum, const Span& d, const Span& h, const Span& w) const {
    const int64_t count = fixed           ? *fixed
                          : count_padding ? wrap_mul(wrap_mul(d.padded, h.padded), w.padded)
                                          : d.count() * h.count() * w.count();
    if constexpr (std::is_integral_v<C>) {
      if (count == 0) return 0;
      return count == -1 ? wrap_sub<C>(0, sum) : sum / count;
    } else {
      return sum / static_cast<C>(count);
    }
  }
};

// Integers are summed in int64, float16 in float, and divided as C++ does.
template <typename C>
Status average(const Windows& windows, const Divisor& divisor, const View& from, const View& to) {
  ComputeInput<C> x;
  ComputeOutput<C> y;
  EDGEWISE_RETURN_IF_ERROR(x.read(from));
  EDGEWISE_RETURN_IF_ERROR(y.prepare(to));
  for_planes(x.sizes, [&](int64_t n, int64_t c) {
    const C* plane = x.data + plane_offset(x.strides, n, c);
    C* result = y.data + plane_offset(y.strides, n, c);
    const int64_t step = x.strides[4];
    windows.each([&](const Span& ds, const Span& hs, const Span& ws, int64_t d, int64_t h,
                     int64_t w) {
      C sum = 0;
      for (int64_t i = ds.first; i < ds.last; ++i) {
        for (int64_t j = hs.first; j < hs.last; ++j) {
          const C* row = plane + pixel_offset(x.strides, i, j, 0);
          for (int64_t k = ws.first; k < ws.last; ++k) sum = wrap_add(sum, row[k * step]);
        }
      }
      const int64_t inside = ds.count() * hs.count() * ws.count();
      result[pixel_offset(y.strides, d, h, w)] = inside ? divisor.divide(sum, ds, hs, ws) : C(0);
    });
  });
  return y.finish();
}

// Each output's gradient is shared out among what its window covers.
template <typename C>
Status share(const Windows& windows, const Divisor& divisor, const View& from, const View& to) {
  ComputeInput<C> x;
  EDGEWISE_RETURN_IF_ERROR(x.read(from));
  Scratch<C> gradient;
  EDGEWISE_RETURN_IF_ERROR(gradient.reserve(to.numel()));
  const Dims strides = contiguous_strides(to.sizes);
  std::fill_n(gradient.data(), to.numel(), C(0));
  for_planes(x.sizes, [&](int64_t n, int64_t c) {
    const C* plane = x.data + plane_offset(x.strides, n, c);
    C* result = gradient.data() + plane_offset(strides, n, c);
    windows.each(
        [&](const Span& ds, const Span& hs, const Span& ws, int64_t d, int64_t h, int64_t w) {
          if (ds.count() * hs.count() * ws.count() == 0) return;
          const C part = divisor.divide(plane[pixel_offset(x.strides, d, h, w)], ds, hs, ws);
          for (int64_t i = ds.first; i < ds.last; ++i) {
            for (int64_t j = hs.first; j < hs.last; ++j) {
              C* row = result + pixel_offset(strides, i, j, 0);
              for (int64_t k = ws.first; k < ws.last; ++k) row[k] += part;
            }
          }
        });
  });
  return assign(to, {reinterpret_cast<std::byte*>(gradient.data()), kTypeOf<C>, to.sizes, strides});
}

Status run(KernelContext& context, Windows& windows, const Divisor& divisor, const Tensor* self,
           size_t spatial, Tensor* out) {
  EDGEWISE_TRY(out->resize(with_spatial(*self, spatial, windows.out)));
  if (out->numel() == 0) return context.status();
  EDGEWISE_TRY(windows.build());
  return with_compute_type(self->type(), [&](auto c) {
    return finish(context,
                  average<decltype(c)>(windows, divisor, spatial_view(view_of(*self), spatial),
                                       spatial_view(view_of(*out), spatial)));
  });
}

Status run_backward(KernelContext& context, Windows& windows, const Divisor& divisor,
                    const Tensor* gradient, const Tensor* self, size_t spatial, Tensor* out) {
  EDGEWISE_TRY(check_image(*gradient, spatial, *self));
  if (!is_floating(self->type()) ||
      !(Dims(gradient->sizes()) == with_spatial(*self, spatial, windows.out))) {
    return context.fail(Code::kInvalidArgument, "the gradient is that of the output for %s; got %s",
                        self->describe().c_str(), gradient->describe().c_str());
  }
  EDGEWISE_TRY(out->resize(self->sizes()));
  if (out->numel() == 0) return context.status();
  EDGEWISE_TRY(windows.build());
  return with_floating_type(self->type(), [&](auto c) {
    return finish(context,
                  share<decltype(c)>(windows, divisor, spatial_view(view_of(*gradient), spatial),
                                     spatial_view(view_of(*out), spatial)));
  });
}

// Arguments ceil_mode, count_include_pad, divisor_override from `index` on.
Status read_rest(KernelContext& context, size_t index, size_t spatial, const Tensor* self,
                 Windows& windows, Divisor& divisor) {
  const bool ceil_mode = context.boolean(index);
  divisor.count_padding = context.boolean(index + 1);
  if (spatial > 1) divisor.fixed = context.optional_integer(index + 2);
  if (!context.ok()) return context.status();
  EDGEWISE_TRY(windows.slide(context, index - 3, *self, spatial, false, ceil_mode));
  if (divisor.fixed == 0) {
    return context.fail(Code::kInvalidArgument, "divisor_override is not zero; got 0");
  }
  return {};
}

template <size_t kSpatial>
Status avg_pool(KernelContext& context) {
  const Tensor* self = context.tensor(0);
  Tensor* out = output(context, kSpatial > 1 ? 7 : 6);
  if (!context.ok()) return context.status();
  EDGEWISE_TRY(check_image(*self, kSpatial, *out));
  Windows windows;
  Divisor divisor;
  EDGEWISE_RETURN_IF_ERROR(read_rest(context, 4, kSpatial, self, windows, divisor));
  return run(context, windows, divisor, self, kSpatial, out);
}

Status avg_pool_backward(KernelContext& context) {
  const Tensor* gradient = context.tensor(0);
  const Tensor* self = context.tensor(1);
  Tensor* out = output(context, 8);
  if (!context.ok()) return context.status();
  EDGEWISE_TRY(check_image(*self, 2, *out));
  Windows windows;
  Divisor divisor;
  EDGEWISE_RETURN_IF_ERROR(read_rest(context, 5, 2, self, windows, divisor));
  return run_backward(context, windows, divisor, gradient, self, 2, out);
}

template <size_t kSpatial>
Status adaptive(KernelContext& context) {
  const Tensor* self = context.tensor(0);
  const std::vector<int64_t> size = context.int_list(1);
  Tensor* out = output(context, 2);
  if (!context.ok()) return context.status();
  EDGEWISE_TRY(check_image(*self, kSpatial, *out));
  Windows windows;
  EDGEWISE_TRY(windows.adapt(*self, kSpatial, size));
  return run(context, windows, {}, self, kSpatial, out);
}

Status adaptive_backward(KernelContext& context) {
  const Tensor* gradient = context.tensor(0);
  const Tensor* self = context.tensor(1);
  Tensor* out = output(context, 2);
  if (!context.ok()) return context.status();
  EDGEWISE_TRY(check_image(*self, 2, *out));
  EDGEWISE_TRY(check_image(*gradient, 2, *self));
  const std::vector<int64_t> size(gradient->sizes().end() - 2, gradient->sizes().end());
  Windows windows;
  EDGEWISE_TRY(windows.adapt(*self, 2, size));
  return run_backward(context, windows, {}, gradient, self, 2, out);
}

constexpr KernelEntry kKernels[] = {
    {"aten::avg_pool1d.out", 7, avg_pool<1>},
    {"aten::avg_pool2d.out", 8, avg_pool<2>},
    {"aten::avg_pool3d.out", 8, avg_pool<3>},
    {"aten::avg_pool2d_backward.grad_input", 9, avg_pool_backward},
    {"aten::adaptive_avg_pool1d.out", 3, adaptive<1>},
    {"aten::_adaptive_avg_pool2d.out", 3, adaptive<2>},
    {"aten::_adaptive_avg_pool3d.out", 3, adaptive<3>},
    {"aten::_adaptive_avg_pool2d_backward.out", 3, adaptive_backward},
};
const KernelTable table(HWY_TARGET, kSelected<kKernels>);

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace edgewise
