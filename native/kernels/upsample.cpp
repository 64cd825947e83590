// Resizing of images: nearest neighbour and bilinear.
#include <cmath>

#include "compute_tensor.h"

namespace edgewise {
namespace {

// Size of the result and, where the caller gave them, factors.
struct Target {
  std::array<int64_t, 2> size{};
  std::array<std::optional<double>, 2> factor;
};

Status resize(KernelContext& context, const Tensor* self, const Target& target, Tensor* out) {
  EDGEWISE_RETURN_IF_ERROR(check_floating(context, self));
  const bool fits = self->rank() == 4 && out->type() == self->type() && target.size[0] > 0 &&
                    target.size[1] > 0 && self->size(2) > 0 && self->size(3) > 0;
  if (!fits) {
    return context.fail(Code::kInvalidArgument,
                        "takes an image [N, C, H, W] to a size with pixels; got %s to %lld x %lld",
                        self->describe().c_str(), static_cast<long long>(target.size[0]),
                        static_cast<long long>(target.size[1]));
  }
  Dims sizes(self->sizes());
  sizes[2] = target.size[0];
  sizes[3] = target.size[1];
  return finish(context, out->resize(sizes));
}

// Arguments of the `vec` overloads: either a size or two factors.
Status read_vec(KernelContext& context, size_t size_index, size_t factor_index, const Tensor* self,
                Target& target) {
  const auto size = context.optional_int_list(size_index);
  const auto factors = context.optional_double_list(factor_index);
  if (!context.ok()) return context.status();
  if (size && size->size() == 2) {
    target.size = {(*size)[0], (*size)[1]};
    return {};
  }
  if (!factors || factors->size() != 2 || self->rank() != 4) {
    return context.fail(Code::kInvalidArgument,
                        "takes a size or factors for height and width; got %s",
                        size ? "others" : "none");
  }
  for (size_t dim = 0; dim < 2; ++dim) {
    target.factor[dim] = (*factors)[dim];
    target.size[dim] = convert<int64_t>(static_cast<double>(self->size(2 + dim)) * (*factors)[dim]);
  }
  return {};
}

Status read_size(KernelContext& context, size_t size_index, size_t factor_index, Target& target) {
  const std::vector<int64_t> size = context.int_list(size_index);
  target.factor = {context.optional_number(factor_index),
                   context.optional_number(factor_index + 1)};
  if (!context.ok()) return context.status();
  if (size.size() != 2) {
    return context.fail(Code::kInvalidArgument, "a size is height and width; got %s",
                        describe(size).c_str());
  }
  target.size = {size[0], size[1]};
  return {};
}

// Input pixels for each output pixel along one dimension.
float step(int64_t in, int64_t out, const std::optional<double>& factor) {
  if (factor && *factor > 0) return static_cast<float>(1.0 / *factor);
  return static_cast<float>(in) / static_cast<float>(out);
}

Status nearest(KernelContext& context, const Tensor* self, const Target& target, Tensor* out) {
  EDGEWISE_RETURN_IF_ERROR(resize(context, self, target, out));
  if (out->numel() == 0) return context.status();
  Scratch<int64_t> sources[2];
  for (size_t dim = 0; dim < 2; ++dim) {
    const int64_t in = self->size(2 + dim), count = target.size[dim];
    const float scale = step(in, count, target.factor[dim]);
    EDGEWISE_TRY(sources[dim].reserve(count));
    for (int64_t i = 0; i < count; ++i) {
      const int64_t at = convert<int64_t>(std::floor(static_cast<float>(i) * scale));
      sources[dim][i] = std::clamp<int64_t>(at, 0, in - 1);
    }
  }
  return with_floating_type(self->type(), [&](auto c) -> Status {
    using C = decltype(c);
    ComputeInput<C> x;
    ComputeOutput<C> y;
    EDGEWISE_TRY(x.read(view_of(*self)));
    EDGEWISE_TRY(y.prepare(view_of(*out)));
    View::Walk walk(y.sizes);
    for (int64_t i = 0; i < out->numel(); ++i, walk.next()) {
      const int64_t h = sources[0][walk[2]], w = sources[1][walk[3]];
      y.data[walk[0] * y.strides[0] + walk[1] * y.strides[1] + walk[2] * y.strides[2] +
             walk[3] * y.strides[3]] = x.data[walk[0] * x.strides[0] + walk[1] * x.strides[1] +
                                              h * x.strides[2] + w * x.strides[3]];
    }
    return finish(context, y.finish());
  });
}

// Two neighbours and the weight of the second.
struct Between {
  int64_t first, second;
  double weight;
};

Status interpolate(int64_t in, int64_t out, bool align_corners, const std::optional<double>& factor,
                   Scratch<Between>& result) {
  EDGEWISE_RETURN_IF_ERROR(result.reserve(out));
  const float aligned = out > 1 ? static_cast<float>(in - 1) / static_cast<float>(out - 1) : 0.0f;
  const float scale = align_corners ? aligned : step(in, out, factor);
  for (int64_t i = 0; i < out; ++i) {
    const float at = align_corners ? scale * static_cast<float>(i)
                                   : scale * (static_cast<float>(i) + 0.5f) - 0.5f;
    const float place = at < 0 ? 0.0f : at;
    const int64_t first = std::clamp<int64_t>(convert<int64_t>(place), 0, in - 1);
    const double weight = static_cast<double>(place - static_cast<float>(first));
    result[i] = {first, std::min(first + 1, in - 1), std::clamp(weight, 0.0, 1.0)};
  }
  return {};
}

Status bilinear(KernelContext& context, const Tensor* self, const Target& target,
                bool align_corners, Tensor* out) {
  EDGEWISE_RETURN_IF_ERROR(resize(context, self, target, out));
  if (out->numel() == 0) return context.status();
  Scratch<Between> rows, columns;
  EDGEWISE_TRY(interpolate(self->size(2), target.size[0], align_corners, target.factor[0], rows));
  EDGEWISE_TRY(
      interpolate(self->size(3), target.size[1], align_corners, target.factor[1], columns));
  return with_floating_type(self->type(), [&](auto c) -> Status {
    using C = decltype(c);
    ComputeInput<C> x;
    ComputeOutput<C> y;
    EDGEWISE_TRY(x.read(view_of(*self)));
    EDGEWISE_TRY(y.prepare(view_of(*out)));
    View::Walk walk(y.sizes);
    for (int64_t i = 0; i < out->numel(); ++i, walk.next()) {
      const C* plane = x.data + walk[0] * x.strides[0] + walk[1] * x.strides[1];
      const Between& h = rows[walk[2]];
      const Between& w = columns[walk[3]];
      const auto pixel = [&](int64_t a, int64_t b) {
        return plane[a * x.strides[2] + b * x.strides[3]];
      };
      const C right = static_cast<C>(w.weight), below = static_cast<C>(h.weight);
      const C top = pixel(h.first, w.first) * (1 - right) + pixel(h.first, w.second) * right;
      const C bottom = pixel(h.second, w.first) * (1 - right) + pixel(h.second, w.second) * right;
      y.data[walk[0] * y.strides[0] + walk[1] * y.strides[1] + walk[2] * y.strides[2] +
             walk[3] * y.strides[3]] = top * (1 - below) + bottom * below;
    }
    return finish(context, y.finish());
  });
}

Status nearest_vec(KernelContext& context) {
  const Tensor* self = context.tensor(0);
  Tensor* out = output(context, 3);
  Target target;
  if (!context.ok()) return context.status();
  EDGEWISE_RETURN_IF_ERROR(read_vec(context, 1, 2, self, target));
  return nearest(context, self, target, out);
}

Status nearest_size(KernelContext& context) {
  const Tensor* self = context.tensor(0);
  Tensor* out = output(context, 4);
  Target target;
  EDGEWISE_RETURN_IF_ERROR(read_size(context, 1, 2, target));
  return nearest(context, self, target, out);
}

Status bilinear_vec(KernelContext& context) {
  const Tensor* self = context.tensor(0);
  const bool align_corners = context.boolean(2);
  Tensor* out = output(context, 4);
  Target target;
  if (!context.ok()) return context.status();
  EDGEWISE_RETURN_IF_ERROR(read_vec(context, 1, 3, self, target));
  return bilinear(context, self, target, align_corners, out);
}

Status bilinear_size(KernelContext& context) {
  const Tensor* self = context.tensor(0);
  const bool align_corners = context.boolean(2);
  Tensor* out = output(context, 5);
  Target target;
  EDGEWISE_RETURN_IF_ERROR(read_size(context, 1, 3, target));
  return bilinear(context, self, target, align_corners, out);
}

const KernelRegistration registrations[] = {
    {"aten::upsample_nearest2d.vec_out", 4, nearest_vec},
    {"aten::upsample_nearest2d.out", 5, nearest_size},
    {"aten::upsample_bilinear2d.vec_out", 5, bilinear_vec},
    {"aten::upsample_bilinear2d.out", 6, bilinear_size},
};

}  // namespace
}  // namespace edgewise
