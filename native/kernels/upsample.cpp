// Resizing in one to three dimensions. Every kind is separable: an output coordinate is a
// weighted sum of a few input coordinates, its taps; kinds differ in the taps.
#include <cmath>

#include "windows.h"

namespace edgewise {
inline namespace HWY_NAMESPACE {
namespace {

enum class Kind : uint8_t {
  kNearest,
  kLinear,
  kCubic,
  // Antialiased: as wide as an output pixel.
  kWideLinear,
  kWideCubic,
  kWideLanczos,
};

// Input pixels to each side of a wide filter's center, where both images have as many pixels; 0 for
// other kinds.
constexpr int64_t radius_of(Kind kind) {
  switch (kind) {
    case Kind::kWideLinear:
      return 1;
    case Kind::kWideCubic:
      return 2;
    case Kind::kWideLanczos:
      return 3;
    default:
      return 0;
  }
}

// Of a distance of at least 0, in input pixels.
template <typename C>
C wide_filter(Kind kind, C d) {
  if (d >= static_cast<C>(radius_of(kind))) return 0;
  if (kind == Kind::kWideLinear) return 1 - d;
  if (kind == Kind::kWideCubic) {
    constexpr C kA = C(-0.5);
    if (d < 1) return ((kA + 2) * d - (kA + 3)) * d * d + 1;
    return (((d - 5) * d + 8) * d - 4) * kA;
  }
  if (d == 0) return 1;
  const C x = d * static_cast<C>(3.14159265358979323846);
  return 3 * std::sin(x) * std::sin(x / 3) / (x * x);
}

// Size of the result and, where the caller gave them, factors.
struct Target {
  Triple size{1, 1, 1};
  std::array<std::optional<double>, 3> factor;
  bool align_corners = false;
};

template <typename C>
struct Taps {
  int64_t most = 1;  // of one coordinate
  Scratch<int64_t> index;
  Scratch<C> weight;

  Status build(Kind kind, int64_t in, int64_t out, bool align, std::optional<double> factor) {
    // Input pixels for each output pixel.
    C scale = static_cast<C>(in) / static_cast<C>(out);
    if (align) {
      scale = out > 1 ? static_cast<C>(in - 1) / static_cast<C>(out - 1) : C(0);
    } else if (factor && *factor > 0) {
      scale = static_cast<C>(1.0 / *factor);
    }
    const C reach = std::max(scale, C(1));
    if (kind == Kind::kLinear) most = 2;
    if (kind == Kind::kCubic) most = 4;
    const int64_t radius = radius_of(kind);
    const C support = reach * static_cast<C>(radius);
    if (radius > 0) {
      most = std::min<int64_t>(in, 2 * convert<int64_t>(std::min(support, C(1 << 20))) + 3);
    }
    if (out > (int64_t{1} << 28) / most) {
      return error(Code::kUnsupported, "resizes to sizes of some millions; got %lld",
                   static_cast<long long>(out));
    }
    EDGEWISE_RETURN_IF_ERROR(index.reserve(out * most));
    EDGEWISE_RETURN_IF_ERROR(weight.reserve(out * most));
    for (int64_t i = 0; i < out; ++i) {
      int64_t* at = index.data() + i * most;
      C* w = weight.data() + i * most;
      const C x = static_cast<C>(i);
      const auto clamped = [in](int64_t k) { return std::clamp<int64_t>(k, 0, in - 1); };
      const C position = align ? scale * x : scale * (x + C(0.5)) - C(0.5);
      switch (kind) {
        case Kind::kNearest:
          at[0] = clamped(convert<int64_t>(std::floor(x * scale)));
          w[0] = 1;
          break;
        case Kind::kLinear: {
          const C from = std::max(position, C(0));
          const int64_t first = clamped(convert<int64_t>(from));
          at[0] = first;
          at[1] = clamped(first + 1);
          w[1] = std::clamp(from - static_cast<C>(first), C(0), C(1));
          w[0] = 1 - w[1];
          break;
        }
        case Kind::kCubic: {
          const C whole = std::floor(position), t = position - whole, a = C(-0.75);
          const int64_t first = std::clamp<int64_t>(convert<int64_t>(whole), -4, in + 4);
          const auto near = [a](C d) { return ((a + 2) * d - (a + 3)) * d * d + 1; };
          const auto far = [a](C d) { return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a; };
          w[0] = far(t + 1), w[1] = near(t), w[2] = near(1 - t), w[3] = far(2 - t);
          for (int64_t k = 0; k < 4; ++k) at[k] = clamped(first - 1 + k);
          break;
        }
        case Kind::kWideLinear:
        case Kind::kWideCubic:
        case Kind::kWideLanczos: {
          const C center = scale * (x + C(0.5));
          const int64_t low = clamped(convert<int64_t>(center - support + C(0.5)));
          const int64_t high =
              std::clamp<int64_t>(convert<int64_t>(center + support + C(0.5)), low, in);
          const int64_t count = std::min(high - low, most);
          C total = 0;
          for (int64_t k = 0; k < most; ++k) {
            const C d = std::abs((static_cast<C>(low + k) - center + C(0.5)) / reach);
            at[k] = clamped(low + k);
            w[k] = k < count ? wide_filter(kind, d) : C(0);
            total += w[k];
          }
          for (int64_t k = 0; k < most && total != 0; ++k) w[k] /= total;
          break;
        }
      }
    }
    return {};
  }
};

// Rows are blended first, all their columns at once; then columns are.
template <typename C>
Status resample(Kind kind, const Target& target, const View& from, const View& to) {
  Taps<C> taps[3];
  for (size_t dim = 0; dim < 3; ++dim) {
    const bool same = from.sizes[2 + dim] == 1 && target.size[dim] == 1;
    EDGEWISE_RETURN_IF_ERROR(taps[dim].build(same ? Kind::kNearest : kind, from.sizes[2 + dim],
                                             target.size[dim], target.align_corners,
                                             target.factor[dim]));
  }
  ComputeInput<C> x;
  ComputeOutput<C> y;
  EDGEWISE_RETURN_IF_ERROR(x.read(from));
  EDGEWISE_RETURN_IF_ERROR(y.prepare(to));
  const int64_t width = x.sizes[4], step = x.strides[4];
  Scratch<C> row;
  EDGEWISE_RETURN_IF_ERROR(row.reserve(width));
  const bool round = is_integral(to.type);
  for_planes(x.sizes, [&](int64_t n, int64_t c) {
    const C* plane = x.data + plane_offset(x.strides, n, c);
    C* result = y.data + plane_offset(y.strides, n, c);
    for (int64_t d = 0; d < target.size[0]; ++d) {
      for (int64_t h = 0; h < target.size[1]; ++h) {
        const C* blended = nullptr;
        for (int64_t i = 0; i < taps[0].most * taps[1].most; ++i) {
          const int64_t a = d * taps[0].most + i / taps[1].most;
          const int64_t b = h * taps[1].most + i % taps[1].most;
          const C weight = taps[0].weight[a] * taps[1].weight[b];
          const C* source = plane + pixel_offset(x.strides, taps[0].index[a], taps[1].index[b], 0);
          if (taps[0].most * taps[1].most == 1 && step == 1) {
            blended = source;
          } else {
            for (int64_t k = 0; k < width; ++k) {
              row[k] = (i > 0 ? row[k] : C(0)) + weight * source[k * step];
            }
            blended = row.data();
          }
        }
        C* out = result + pixel_offset(y.strides, d, h, 0);
        const int64_t most = taps[2].most;
        for (int64_t w = 0; w < target.size[2]; ++w) {
          const int64_t* at = taps[2].index.data() + w * most;
          const C* weight = taps[2].weight.data() + w * most;
          C sum = weight[0] * blended[at[0]];
          for (int64_t k = 1; k < most; ++k) sum += weight[k] * blended[at[k]];
          if (round) sum = std::clamp(std::nearbyint(sum), C(0), C(255));
          out[w * y.strides[4]] = sum;
        }
      }
    }
  });
  return y.finish();
}

Status resize(KernelContext& context, Kind kind, const Tensor* self, size_t spatial, Target target,
              Tensor* out) {
  bool fits = self->rank() == spatial + 2 && out->type() == self->type() &&
              (is_floating(self->type()) || self->type() == ScalarType::kByte);
  for (size_t dim = 3 - spatial; fits && dim < 3; ++dim) {
    fits = target.size[dim] > 0 && target.size[dim] < kSpatialLimit &&
           self->size(dim + spatial - 1) > 0 && self->size(dim + spatial - 1) < kSpatialLimit;
  }
  if (!fits) {
    return context.fail(Code::kInvalidArgument,
                        "takes images [N, C, ...], floating or uint8, to a size with pixels; got "
                        "%s to %s",
                        self->describe().c_str(), describe(target.size).c_str());
  }
  // PyTorch looks at no factor where a side of an image stays or doubles, so 1.3 times 3 is 3.
  for (size_t dim = 1; kind == Kind::kNearest && spatial == 2 && dim < 3; ++dim) {
    const int64_t before = self->size(dim + 1), after = target.size[dim];
    if (after == before || after == 2 * before) target.factor[dim].reset();
  }
  EDGEWISE_TRY(out->resize(with_spatial(*self, spatial, target.size)));
  if (out->numel() == 0) return context.status();
  return with_floating_type(self->type(), [&](auto c) {
    return finish(context,
                  resample<decltype(c)>(kind, target, spatial_view(view_of(*self), spatial),
                                        spatial_view(view_of(*out), spatial)));
  });
}

// `vec` overloads take a size or factors, the others a size and perhaps factors. All but the
// nearest have align_corners after the size.
Status upsample(KernelContext& context, Kind kind, size_t spatial, bool vec) {
  const size_t aligned = kind == Kind::kNearest ? 0 : 1;
  const Tensor* self = context.tensor(0);
  Target target;
  if (aligned) target.align_corners = context.boolean(2);
  Tensor* out = output(context, 2 + aligned + (vec ? 1 : spatial));
  const auto size = context.optional_int_list(1);
  if (!context.ok()) return context.status();
  if (size) EDGEWISE_TRY(set_spatial(target.size, spatial, 1, *size, "output_size"));
  if (vec) {
    const auto factors = context.optional_double_list(2 + aligned);
    if (!context.ok()) return context.status();
    if (!size && (!factors || factors->size() != spatial || self->rank() != spatial + 2)) {
      return context.fail(Code::kInvalidArgument, "takes a size or factors for all dimensions");
    }
    for (size_t i = 0; !size && i < spatial; ++i) {
      const size_t dim = 3 - spatial + i;
      target.factor[dim] = (*factors)[i];
      target.size[dim] = convert<int64_t>(static_cast<double>(self->size(2 + i)) * (*factors)[i]);
    }
  } else {
    if (!size) return context.fail(Code::kInvalidArgument, "takes a size; got none");
    for (size_t i = 0; i < spatial; ++i) {
      target.factor[3 - spatial + i] = context.optional_number(2 + aligned + i);
    }
    if (!context.ok()) return context.status();
  }
  return resize(context, kind, self, spatial, target, out);
}

template <Kind kKind, size_t kSpatial, bool kVec>
Status upsample(KernelContext& context) {
  return upsample(context, kKind, kSpatial, kVec);
}

constexpr KernelEntry kKernels[] = {
    {"aten::upsample_nearest1d.vec_out", 4, upsample<Kind::kNearest, 1, true>},
    {"aten::upsample_nearest1d.out", 4, upsample<Kind::kNearest, 1, false>},
    {"aten::upsample_nearest2d.vec_out", 4, upsample<Kind::kNearest, 2, true>},
    {"aten::upsample_nearest2d.out", 5, upsample<Kind::kNearest, 2, false>},
    {"aten::upsample_nearest3d.vec_out", 4, upsample<Kind::kNearest, 3, true>},
    {"aten::upsample_nearest3d.out", 6, upsample<Kind::kNearest, 3, false>},
    {"aten::upsample_linear1d.vec_out", 5, upsample<Kind::kLinear, 1, true>},
    {"aten::upsample_linear1d.out", 5, upsample<Kind::kLinear, 1, false>},
    {"aten::upsample_bilinear2d.vec_out", 5, upsample<Kind::kLinear, 2, true>},
    {"aten::upsample_bilinear2d.out", 6, upsample<Kind::kLinear, 2, false>},
    {"aten::upsample_trilinear3d.vec_out", 5, upsample<Kind::kLinear, 3, true>},
    {"aten::upsample_trilinear3d.out", 7, upsample<Kind::kLinear, 3, false>},
    {"aten::upsample_bicubic2d.vec_out", 5, upsample<Kind::kCubic, 2, true>},
    {"aten::upsample_bicubic2d.out", 6, upsample<Kind::kCubic, 2, false>},
    {"aten::_upsample_bilinear2d_aa.vec_out", 5, upsample<Kind::kWideLinear, 2, true>},
    {"aten::_upsample_bilinear2d_aa.out", 6, upsample<Kind::kWideLinear, 2, false>},
    {"aten::_upsample_bicubic2d_aa.vec_out", 5, upsample<Kind::kWideCubic, 2, true>},
    {"aten::_upsample_bicubic2d_aa.out", 6, upsample<Kind::kWideCubic, 2, false>},
    {"aten::_upsample_lanczos2d_aa.vec_out", 5, upsample<Kind::kWideLanczos, 2, true>},
    {"aten::_upsample_lanczos2d_aa.out", 6, upsample<Kind::kWideLanczos, 2, false>},
};
const KernelTable table(HWY_TARGET, kSelected<kKernels>);

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace edgewise
