// The largest elements of windows and where they are, and the gradient through those positions.
#include <limits>

#include "windows.h"

namespace edgewise {
inline namespace HWY_NAMESPACE {
namespace {

template <typename C>
Status largest(const Windows& windows, const View& from, const View& to, const View& positions) {
  ComputeInput<C> x;
  ComputeOutput<C> y;
  EDGEWISE_RETURN_IF_ERROR(x.read(from));
  EDGEWISE_RETURN_IF_ERROR(y.prepare(to));
  auto* indices = reinterpret_cast<int64_t*>(positions.data);
  for_planes(x.sizes, [&](int64_t n, int64_t c) {
    const C* plane = x.data + plane_offset(x.strides, n, c);
    C* result = y.data + plane_offset(y.strides, n, c);
    int64_t* position = indices + plane_offset(positions.strides, n, c);
    const int64_t step = x.strides[4];
    windows.each(
        [&](const Span& ds, const Span& hs, const Span& ws, int64_t d, int64_t h, int64_t w) {
          C best = std::is_integral_v<C> ? std::numeric_limits<C>::min()
                                         : -std::numeric_limits<C>::infinity();
          int64_t best_at = (ds.first * windows.in[1] + hs.first) * windows.in[2] + ws.first;
          for (int64_t i = ds.first; i < ds.last; i += ds.step) {
            for (int64_t j = hs.first; j < hs.last; j += hs.step) {
              const C* row = plane + pixel_offset(x.strides, i, j, 0);
              for (int64_t k = ws.first; k < ws.last; k += ws.step) {
                const C value = row[k * step];
                if (value > best || value != value) {
                  best = value;
                  best_at = (i * windows.in[1] + j) * windows.in[2] + k;
                }
              }
            }
          }
          result[pixel_offset(y.strides, d, h, w)] = best;
          position[pixel_offset(positions.strides, d, h, w)] = best_at;
        });
  });
  return y.finish();
}

Status run(KernelContext& context, Windows& windows, const Tensor* self, size_t spatial,
           Tensor* out, Tensor* indices) {
  if (indices->type() != ScalarType::kLong) {
    return context.fail(Code::kInvalidArgument, "indices are int64; got %s",
                        indices->describe().c_str());
  }
  const Dims sizes = with_spatial(*self, spatial, windows.out);
  EDGEWISE_TRY(out->resize(sizes));
  EDGEWISE_TRY(indices->resize(sizes));
  if (out->numel() == 0) return context.status();
  EDGEWISE_TRY(windows.build());
  return with_compute_type(self->type(), [&](auto c) {
    return finish(context, largest<decltype(c)>(windows, spatial_view(view_of(*self), spatial),
                                                spatial_view(view_of(*out), spatial),
                                                spatial_view(view_of(*indices), spatial)));
  });
}

template <size_t kSpatial>
Status max_pool(KernelContext& context) {
  const Tensor* self = context.tensor(0);
  const bool ceil_mode = context.boolean(5);
  Tensor* out = output(context, 6);
  Tensor* indices = output(context, 7);
  if (!context.ok()) return context.status();
  EDGEWISE_TRY(check_image(*self, kSpatial, *out));
  Windows windows;
  EDGEWISE_TRY(windows.slide(context, 1, *self, kSpatial, true, ceil_mode));
  return run(context, windows, self, kSpatial, out, indices);
}

template <size_t kSpatial>
Status adaptive(KernelContext& context) {
  const Tensor* self = context.tensor(0);
  const std::vector<int64_t> size = context.int_list(1);
  Tensor* out = output(context, 2);
  Tensor* indices = output(context, 3);
  if (!context.ok()) return context.status();
  EDGEWISE_TRY(check_image(*self, kSpatial, *out));
  Windows windows;
  EDGEWISE_TRY(windows.adapt(*self, kSpatial, size));
  return run(context, windows, self, kSpatial, out, indices);
}

template <typename C>
Status pass_back(const View& from, const View& positions, const View& to) {
  ComputeInput<C> x;
  ComputeInput<int64_t> at;
  EDGEWISE_RETURN_IF_ERROR(x.read(from, true));
  EDGEWISE_RETURN_IF_ERROR(at.read(positions, true));
  Scratch<C> gradient;
  EDGEWISE_RETURN_IF_ERROR(gradient.reserve(to.numel()));
  const Dims strides = contiguous_strides(to.sizes);
  std::fill_n(gradient.data(), to.numel(), C(0));
  const int64_t planes = to.sizes[0] * to.sizes[1];
  const int64_t pixels = to.numel() / planes, outputs = from.numel() / planes;
  for (int64_t i = 0; i < from.numel(); ++i) {
    if (at.data[i] < 0 || at.data[i] >= pixels) {
      return error(Code::kInvalidArgument, "an index must be in [0, %lld]; got %lld",
                   static_cast<long long>(pixels - 1), static_cast<long long>(at.data[i]));
    }
    gradient[i / outputs * pixels + at.data[i]] += x.data[i];
  }
  return assign(to, {reinterpret_cast<std::byte*>(gradient.data()), kTypeOf<C>, to.sizes, strides});
}

Status max_pool_backward(KernelContext& context) {
  const Tensor* gradient = context.tensor(0);
  const Tensor* self = context.tensor(1);
  const bool ceil_mode = context.boolean(6);
  const Tensor* indices = context.tensor(7);
  Tensor* out = output(context, 8);
  if (!context.ok()) return context.status();
  EDGEWISE_TRY(check_image(*self, 2, *out));
  EDGEWISE_TRY(check_image(*gradient, 2, *self));
  Windows windows;
  EDGEWISE_TRY(windows.slide(context, 2, *self, 2, true, ceil_mode));
  const Dims sizes = with_spatial(*self, 2, windows.out);
  if (!is_floating(self->type()) || indices->type() != ScalarType::kLong ||
      !(Dims(gradient->sizes()) == sizes) || !(Dims(indices->sizes()) == sizes)) {
    return context.fail(Code::kInvalidArgument,
                        "gradient and int64 indices are those of the output for %s; got %s and %s",
                        self->describe().c_str(), gradient->describe().c_str(),
                        indices->describe().c_str());
  }
  EDGEWISE_TRY(out->resize(self->sizes()));
  if (out->numel() == 0) return context.status();
  if (gradient->numel() == 0) return finish(context, fill(view_of(*out), Scalar{}));
  return with_floating_type(self->type(), [&](auto c) {
    return finish(context, pass_back<decltype(c)>(spatial_view(view_of(*gradient), 2),
                                                  spatial_view(view_of(*indices), 2),
                                                  spatial_view(view_of(*out), 2)));
  });
}

constexpr KernelEntry kKernels[] = {
    {"aten::max_pool2d_with_indices.out", 8, max_pool<2>},
    {"aten::max_pool3d_with_indices.out", 8, max_pool<3>},
    {"aten::adaptive_max_pool2d.out", 4, adaptive<2>},
    {"aten::adaptive_max_pool3d.out", 4, adaptive<3>},
    {"aten::max_pool2d_with_indices_backward.grad_input", 9, max_pool_backward},
};
const KernelTable table(HWY_TARGET, kSelected<kKernels>);

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace edgewise
