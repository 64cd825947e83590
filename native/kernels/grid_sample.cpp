// Images read at positions that a grid gives, in two and three dimensions.
#include <cmath>

#include "windows.h"

namespace edgewise {
inline namespace HWY_NAMESPACE {
namespace {

enum Interpolation : int64_t { kBilinear = 0, kNearest = 1, kBicubic = 2 };
enum Padding : int64_t { kZeros = 0, kBorder = 1, kReflection = 2 };

struct Rules {
  int64_t interpolation, padding;
  bool align_corners;
};

// What one coordinate reads; -1 is outside and reads zero.
template <typename C>
struct Taps {
  int64_t count = 0;
  int64_t index[4];
  C weight[4];
};

template <typename C>
C reflect(C x, C low, C high) {
  if (high <= low) return 0;
  const C span = high - low, away = std::abs(x - low);
  const C rest = std::fmod(away, span);
  return std::fmod(std::floor(away / span), C(2)) == 0 ? low + rest : high - rest;
}

template <typename C>
C settle(C x, int64_t size, const Rules& rules) {
  const C last = static_cast<C>(size - 1);
  if (rules.padding == kReflection) {
    x = rules.align_corners ? reflect(x, C(0), last) : reflect(x, C(-0.5), last + C(0.5));
  }
  return rules.padding == kZeros ? x : std::min(last, std::max(x, C(0)));
}

template <typename C>
Taps<C> taps_at(C position, int64_t size, const Rules& rules) {
  const C n = static_cast<C>(size);
  C x = rules.align_corners ? (position + 1) / 2 * (n - 1) : ((position + 1) * n - 1) / 2;
  Taps<C> taps;
  const auto add = [&](C at, C weight) {
    const bool inside = at >= 0 && at < n;
    taps.index[taps.count] = inside ? static_cast<int64_t>(at) : -1;
    taps.weight[taps.count++] = weight;
  };
  if (rules.interpolation == kBicubic) {
    const C whole = std::floor(x), t = x - whole, a = C(-0.75);
    const auto near = [a](C d) { return ((a + 2) * d - (a + 3)) * d * d + 1; };
    const auto far = [a](C d) { return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a; };
    const C weights[] = {far(t + 1), near(t), near(1 - t), far(2 - t)};
    for (int k = 0; k < 4; ++k) add(settle(whole - 1 + static_cast<C>(k), size, rules), weights[k]);
    return taps;
  }
  x = settle(x, size, rules);
  if (rules.interpolation == kNearest) {
    add(std::nearbyint(x), C(1));
  } else {
    const C whole = std::floor(x), t = x - whole;
    add(whole, 1 - t);
    add(whole + 1, t);
  }
  return taps;
}

// What the pixel at a position reads of a plane; returns how many elements.
template <typename C>
int64_t find_taps(const C* position, const ComputeInput<C>& image, size_t spatial,
                  const Rules& rules, int64_t* offsets, C* weights) {
  Taps<C> taps[3];
  for (size_t dim = 0; dim < 3; ++dim) {
    if (dim < 3 - spatial) {
      taps[dim].count = 1, taps[dim].index[0] = 0, taps[dim].weight[0] = 1;
    } else {
      taps[dim] = taps_at(position[2 - dim], image.sizes[2 + dim], rules);
    }
  }
  int64_t count = 0;
  for (int64_t i = 0; i < taps[0].count; ++i) {
    for (int64_t j = 0; j < taps[1].count; ++j) {
      for (int64_t k = 0; k < taps[2].count; ++k) {
        const int64_t d = taps[0].index[i], h = taps[1].index[j], w = taps[2].index[k];
        if (d < 0 || h < 0 || w < 0) continue;
        offsets[count] = pixel_offset(image.strides, d, h, w);
        weights[count++] = taps[0].weight[i] * taps[1].weight[j] * taps[2].weight[k];
      }
    }
  }
  return count;
}

template <typename C>
Status sample(const View& image, const View& grid, size_t spatial, const Rules& rules,
              const View& out) {
  ComputeInput<C> x, positions;
  ComputeOutput<C> y;
  EDGEWISE_RETURN_IF_ERROR(x.read(image));
  EDGEWISE_RETURN_IF_ERROR(positions.read(grid, true));
  EDGEWISE_RETURN_IF_ERROR(y.prepare(out));
  const int64_t pixels = out.sizes[2] * out.sizes[3] * out.sizes[4];
  // Every channel reads the same positions: those of some pixels are found, then read channel by
  // channel, which lie far apart.
  constexpr int64_t kPixels = 64, kMostTaps = 16;
  int64_t offsets[kPixels * kMostTaps], targets[kPixels], counts[kPixels];
  C weights[kPixels * kMostTaps];
  for (int64_t n = 0; n < out.sizes[0]; ++n) {
    for (int64_t first = 0; first < pixels; first += kPixels) {
      const int64_t block = std::min(kPixels, pixels - first);
      int64_t held = 0;
      for (int64_t i = 0; i < block; ++i) {
        const int64_t p = first + i, width = out.sizes[4], height = out.sizes[3];
        targets[i] = pixel_offset(y.strides, p / (height * width), p / width % height, p % width);
        const C* at = positions.data + (n * pixels + p) * static_cast<int64_t>(spatial);  // x, y, z
        const int64_t before = held;
        held += find_taps(at, x, spatial, rules, offsets + held, weights + held);
        counts[i] = held - before;
      }
      const bool bilinear = std::all_of(counts, counts + block, [](auto k) { return k == 4; });
      for (int64_t c = 0; c < out.sizes[1]; ++c) {
        const C* plane = x.data + plane_offset(x.strides, n, c);
        C* result = y.data + plane_offset(y.strides, n, c);
        const int64_t* from = offsets;
        const C* by = weights;
        for (int64_t i = 0; i < block; ++i) {
          if (bilinear) {
            result[targets[i]] = (by[0] * plane[from[0]] + by[1] * plane[from[1]]) +
                                 (by[2] * plane[from[2]] + by[3] * plane[from[3]]);
            from += 4, by += 4;
            continue;
          }
          C sum = 0;
          for (int64_t k = 0; k < counts[i]; ++k) sum += *by++ * plane[*from++];
          result[targets[i]] = sum;
        }
      }
    }
  }
  return y.finish();
}

template <size_t kSpatial>
Status grid_sampler(KernelContext& context) {
  const Tensor* self = context.tensor(0);
  const Tensor* grid = context.tensor(1);
  const Rules rules{context.integer(2), context.integer(3), context.boolean(4)};
  Tensor* out = output(context, 5);
  if (!context.ok()) return context.status();
  constexpr size_t kRank = kSpatial + 2;
  bool fits = self->rank() == kRank && grid->rank() == kRank && is_floating(self->type()) &&
              grid->type() == self->type() && out->type() == self->type() &&
              grid->size(0) == self->size(0) &&
              grid->size(kRank - 1) == static_cast<int64_t>(kSpatial) && rules.interpolation >= 0 &&
              rules.interpolation <= (kSpatial == 2 ? 2 : 1) && rules.padding >= 0 &&
              rules.padding <= 2;
  for (size_t dim = 2; fits && dim < kRank; ++dim) {
    fits = self->size(dim) > 0 && self->size(dim) < kSpatialLimit;
  }
  if (!fits) {
    return context.fail(Code::kInvalidArgument,
                        "takes an image [N, C, ...] and a grid [N, ..., %zu] of its type, known "
                        "modes; got %s and %s",
                        kSpatial, self->describe().c_str(), grid->describe().c_str());
  }
  Triple size{1, 1, 1};
  for (size_t dim = 0; dim < kSpatial; ++dim) size[3 - kSpatial + dim] = grid->size(1 + dim);
  EDGEWISE_TRY(out->resize(with_spatial(*self, kSpatial, size)));
  if (out->numel() == 0) return context.status();
  return with_floating_type(self->type(), [&](auto c) {
    return finish(context,
                  sample<decltype(c)>(spatial_view(view_of(*self), kSpatial), view_of(*grid),
                                      kSpatial, rules, spatial_view(view_of(*out), kSpatial)));
  });
}

constexpr KernelEntry kKernels[] = {
    {"aten::grid_sampler_2d.out", 6, grid_sampler<2>},
    {"aten::grid_sampler_3d.out", 6, grid_sampler<3>},
};
const KernelTable table(HWY_TARGET, kSelected<kKernels>);

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace edgewise
