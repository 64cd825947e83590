#include "backends/xnnpack/executor/float_kernels.h"

#include <array>
#include <limits>
#include <utility>
#include <vector>

#include "backends/xnnpack/limit_cpu.h"
#include "core/cpu_level.h"

#define EDGEWISE_TARGETS_WITHOUT HWY_SSE4
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/xnnpack/executor/float_kernels.cpp"
#include "core/simd_foreach.h"
#include "core/simd_math-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace edgewise::xnnpack {
namespace HWY_NAMESPACE {
// Without fused multiplication and addition nothing is gained.
#if HWY_NATIVE_FMA
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using simd::HWY_NAMESPACE::clamp;
using simd::HWY_NAMESPACE::exp_of_negative;
using VectorTag = hn::ScalableTag<float>;
using OneTag = hn::CappedTag<float, 1>;  // for what is left of a row
using Vector = hn::Vec<VectorTag>;

constexpr const char* kName = HWY_TARGET == HWY_AVX3   ? "avx512"
                              : HWY_TARGET == HWY_AVX2 ? "avx2"
                                                       : "neon";
constexpr bool kHasWideVectors = HWY_TARGET == HWY_AVX3;
constexpr bool kIsAvx2 = HWY_TARGET == HWY_AVX2;
// Products by one lane of a vector, and as many registers as AVX-512 has.
constexpr bool kIsNeon = HWY_ARCH_ARM_A64;
constexpr VectorTag kVector;
constexpr size_t kLanes = hn::MaxLanes(kVector);
// Rows and vectors of a GEMM tile: the sums leave registers for both factors.
constexpr size_t kRows = kHasWideVectors ? 14 : kIsNeon ? 5 : 6;
constexpr size_t kVectors = kIsNeon ? 4 : 2;
constexpr size_t kColumns = kVectors * kLanes;
constexpr GemmLimits kGemmLimits =
    kHasWideVectors ? GemmLimits{"16 rows, 4 million products, and a depth of 64 or a residual", 16,
                                 64, size_t{1} << 22, kColumns}
    : kIsNeon       ? GemmLimits{"5 rows, and a depth of 16 or a residual", kRows, 16, 0, kLanes}
                    : GemmLimits{"6 rows, and a depth of 32 or a residual", kRows, 32, 0, kLanes};

// ---- GEMM

constexpr float kInfinity = std::numeric_limits<float>::infinity();

bool is_bounded(const Finish& finish) { return finish.min > -kInfinity || finish.max < kInfinity; }

template <size_t kUsed>
HWY_INLINE void load_start(const Finish* finish, Vector (&start)[kUsed]) {
#pragma GCC unroll 4
  for (size_t j = 0; j < kUsed; ++j) {
    start[j] =
        finish == nullptr ? hn::Zero(kVector) : hn::LoadU(kVector, finish->bias + j * kLanes);
  }
}

// Columns of the last vector of `kUsed`.
template <size_t kUsed>
HWY_INLINE size_t last_columns(size_t columns) {
  return columns - (kUsed - 1) * kLanes;
}

// Where the next row's residual is.
template <size_t kTileRows, size_t kUsed>
HWY_INLINE const float* add_residual(const float* residual, size_t stride, size_t columns,
                                     Vector (&sum)[kTileRows][kUsed]) {
  const size_t last = last_columns<kUsed>(columns);
#pragma GCC unroll 16
  for (size_t i = 0; i < kTileRows; ++i, residual += stride) {
#pragma GCC unroll 4
    for (size_t j = 0; j < kUsed; ++j) {
      const float* from = residual + j * kLanes;
      // With a mask at no cost on CPUs that have them: so there is no second loop.
      const bool is_whole = j + 1 < kUsed || (!kHasWideVectors && last == kLanes);
      sum[i][j] =
          hn::Add(sum[i][j], is_whole ? hn::LoadU(kVector, from) : hn::LoadN(kVector, from, last));
    }
  }
  return residual;
}

// Where the next row's results go.
template <size_t kTileRows, size_t kUsed>
HWY_INLINE float* store_sums(const Vector (&sum)[kTileRows][kUsed], size_t columns, float* c,
                             size_t stride) {
  const size_t last = last_columns<kUsed>(columns);
#pragma GCC unroll 16
  for (size_t i = 0; i < kTileRows; ++i) {
#pragma GCC unroll 4
    for (size_t j = 0; j < kUsed; ++j) {
      if (j + 1 < kUsed || last == kLanes) {
        hn::StoreU(sum[i][j], kVector, c + j * kLanes);
      } else {
        hn::StoreN(sum[i][j], kVector, c + j * kLanes, last);
      }
    }
    c += stride;
    __asm__("" : "+r"(c));  // so that a row's vectors are stored at once
  }
  return c;
}

template <size_t kTileRows, size_t kUsed>
HWY_INLINE void clamp_sums(const Finish& finish, Vector (&sum)[kTileRows][kUsed]) {
  const Vector min = hn::Set(kVector, finish.min), max = hn::Set(kVector, finish.max);
#pragma GCC unroll 16
  for (size_t i = 0; i < kTileRows; ++i) {
#pragma GCC unroll 4
    for (size_t j = 0; j < kUsed; ++j) sum[i][j] = clamp(sum[i][j], min, max);
  }
}

#if HWY_ARCH_ARM_A64

// Step `kStep` of those for which each row has one vector. In assembly: or compilers copy sums
// from register to register.
template <size_t kStep, size_t kTileRows, size_t kUsed>
HWY_INLINE void add_lane(const Vector (&x)[kTileRows], const Vector (&b)[kUsed],
                         Vector (&sum)[kTileRows][kUsed]) {
#pragma GCC unroll 16
  for (size_t i = 0; i < kTileRows; ++i) {
#pragma GCC unroll 4
    for (size_t j = 0; j < kUsed; ++j) {
      __asm__("fmla %0.4s, %1.4s, %2.s[%3]"
              : "+w"(sum[i][j].raw)
              : "w"(b[j].raw), "w"(x[i].raw), "i"(kStep));
    }
  }
}

// The same of the panel's next vectors, past which it moves.
template <size_t kStep, bool kIsDense, size_t kTileRows, size_t kUsed>
HWY_INLINE void add_lane_of_panel(const Vector (&x)[kTileRows], const float*& panel,
                                  size_t panel_stride, Vector (&sum)[kTileRows][kUsed]) {
  if constexpr (kIsDense && kUsed == kVectors) {
    // Registers are named because compilers that have to find four in a row move sums about.
    register float32x4_t b0 __asm__("v28");
    register float32x4_t b1 __asm__("v29");
    register float32x4_t b2 __asm__("v30");
    register float32x4_t b3 __asm__("v31");
    __asm__("ld1 {v28.4s, v29.4s, v30.4s, v31.4s}, [%4], #64"
            : "=w"(b0), "=w"(b1), "=w"(b2), "=w"(b3), "+r"(panel)
            :
            : "memory");
    add_lane<kStep>(x, {Vector(b0), Vector(b1), Vector(b2), Vector(b3)}, sum);
  } else {
    Vector b[kUsed];
#pragma GCC unroll 4
    for (size_t j = 0; j < kUsed; ++j) b[j] = hn::LoadU(kVector, panel + j * kLanes);
    panel += kIsDense ? kColumns : panel_stride;
    add_lane<kStep>(x, b, sum);
  }
}

// The products of `depth` steps are added; `a` and `panel` move past them.
template <bool kIsDense, size_t kTileRows, size_t kUsed>
HWY_INLINE void add_steps(size_t depth, const float* (&a)[kTileRows], const float*& panel,
                          size_t panel_stride, Vector (&sum)[kTileRows][kUsed]) {
  for (size_t steps = depth / kLanes; steps > 0; --steps) {
    Vector x[kTileRows];
#pragma GCC unroll 16
    for (size_t i = 0; i < kTileRows; ++i) {
      x[i] = hn::LoadU(kVector, a[i]);
      a[i] += kLanes;
      __asm__("" : "+r"(a[i]));
    }
    add_lane_of_panel<0, kIsDense>(x, panel, panel_stride, sum);
    add_lane_of_panel<1, kIsDense>(x, panel, panel_stride, sum);
    add_lane_of_panel<2, kIsDense>(x, panel, panel_stride, sum);
    add_lane_of_panel<3, kIsDense>(x, panel, panel_stride, sum);
  }
  for (size_t steps = depth % kLanes; steps > 0; --steps) {
    Vector x[kTileRows];
#pragma GCC unroll 16
    for (size_t i = 0; i < kTileRows; ++i) {
      x[i] = hn::Set(kVector, *a[i]);
      ++a[i];
      __asm__("" : "+r"(a[i]));
    }
    add_lane_of_panel<0, kIsDense>(x, panel, panel_stride, sum);
  }
}

// The products of a tile are added to `sum`: `kUsed` vectors of the panel's `kVectors`.
template <size_t kTileRows, size_t kUsed>
HWY_INLINE void add_products(const GemmTile& tile, Vector (&sum)[kTileRows][kUsed]) {
  const size_t depth = tile.depth;
  const float* a[kTileRows];
  const float* from = tile.a;
#pragma GCC unroll 16
  for (size_t i = 0; i < kTileRows; ++i, from += tile.a_stride) a[i] = from;
  const float* panel = tile.panel;
  const bool is_dense = tile.panel_stride == kColumns;
  for (size_t segment = tile.segments;;) {
    if (is_dense) {
      add_steps<true>(depth, a, panel, tile.panel_stride, sum);
    } else {
      add_steps<false>(depth, a, panel, tile.panel_stride, sum);
    }
    if (--segment == 0) break;
#pragma GCC unroll 16
    for (size_t i = 0; i < kTileRows; ++i) a[i] += tile.segment_stride - depth;
  }
}

#else

constexpr size_t kRowsOfBase = 4;
// Floats from what of a panel is multiplied to what is fetched into the first cache.
constexpr size_t kNear = 2048;

// As above.
template <size_t kTileRows, size_t kUsed>
HWY_INLINE void add_products(const GemmTile& tile, Vector (&sum)[kTileRows][kUsed]) {
  // Rows are addressed from few pointers: from one, compilers keep a distance for each and spill
  // them; that they belong together is hidden from them.
  constexpr size_t kBases = (kTileRows + kRowsOfBase - 1) / kRowsOfBase;
  const size_t a_stride = tile.a_stride;
  const float* a[kBases];
#pragma GCC unroll 8
  for (size_t i = 0; i < kBases; ++i) {
    a[i] = tile.a + i * kRowsOfBase * a_stride;
    __asm__("" : "+r"(a[i]));
  }
  const float* panel = tile.panel;
  const size_t panel_stride = tile.panel_stride;
  const char* ahead = tile.ahead;
  const size_t ahead_step = tile.ahead_step;
  for (size_t segment = tile.segments;;) {
    for (size_t p = tile.depth; p > 0; --p) {
      Vector b[kUsed];
#pragma GCC unroll 4
      for (size_t j = 0; j < kUsed; ++j) b[j] = hn::LoadU(kVector, panel + j * kLanes);
      if constexpr (kHasWideVectors) {  // of others a cache brings enough by itself
#pragma GCC unroll 4
        for (size_t j = 0; j < kUsed; ++j) __builtin_prefetch(panel + j * kLanes + kNear, 0, 3);
      }
      panel += panel_stride;
      __builtin_prefetch(ahead, 0, 2);
      ahead += ahead_step;
#pragma GCC unroll 16
      for (size_t i = 0; i < kTileRows; ++i) {
        const Vector x = hn::Set(kVector, a[i / kRowsOfBase][i % kRowsOfBase * a_stride]);
#pragma GCC unroll 4
        for (size_t j = 0; j < kUsed; ++j) sum[i][j] = hn::MulAdd(x, b[j], sum[i][j]);
      }
#pragma GCC unroll 8
      for (size_t i = 0; i < kBases; ++i) ++a[i];
    }
    if (--segment == 0) break;
#pragma GCC unroll 8
    for (size_t i = 0; i < kBases; ++i) a[i] += tile.segment_stride - tile.depth;
  }
}

#endif

// `blocks` of `kTileRows` rows, one after the other.
template <size_t kTileRows, size_t kUsed>
void multiply_rows(const GemmTile& all, const Finish* finish, size_t blocks) {
  GemmTile tile = all;
  const float* residual = finish == nullptr ? nullptr : finish->residual;
  const bool bounded = finish != nullptr && is_bounded(*finish);
  Vector start[kUsed];
  load_start(finish, start);
  for (; blocks > 0; --blocks) {
    Vector sum[kTileRows][kUsed];
#pragma GCC unroll 16
    for (size_t i = 0; i < kTileRows; ++i) {
#pragma GCC unroll 4
      for (size_t j = 0; j < kUsed; ++j) sum[i][j] = start[j];
    }
    add_products(tile, sum);
    if (residual != nullptr) {
      residual = add_residual(residual, finish->residual_stride, tile.columns, sum);
    }
    if (bounded) clamp_sums(*finish, sum);
    tile.c = store_sums(sum, tile.columns, tile.c, tile.c_stride);
    tile.a += kTileRows * tile.a_stride;
    tile.ahead += tile.segments * tile.depth * tile.ahead_step;
  }
}

using MultiplyRows = void (*)(const GemmTile& tile, const Finish* finish, size_t blocks);

template <size_t kUsed, size_t... kLess>
constexpr std::array<MultiplyRows, sizeof...(kLess)> by_rows(std::index_sequence<kLess...>) {
  return {multiply_rows<kLess + 1, kUsed>...};
}

template <size_t... kLess>
constexpr std::array<std::array<MultiplyRows, kRows>, sizeof...(kLess)> by_vectors(
    std::index_sequence<kLess...>) {
  return {by_rows<kLess + 1>(std::make_index_sequence<kRows>())...};
}

// [i][j] is for tiles of i + 1 vectors and j + 1 rows.
constexpr auto kMultiplyRows = by_vectors(std::make_index_sequence<kVectors>());

void multiply(const GemmTile& all, const Finish* finish) {
  const auto& kernels = kMultiplyRows[(all.columns - 1) / kLanes];
  const size_t most = all.most_rows == 0 ? kRows : all.most_rows;
  const size_t blocks = (all.rows + most - 1) / most;
  const size_t rows = all.rows / blocks, larger = all.rows % blocks;
  if (larger == 0) return kernels[rows - 1](all, finish, blocks);
  kernels[rows](all, finish, larger);
  GemmTile rest = all;
  Finish part = finish == nullptr ? Finish{} : *finish;
  const size_t done = larger * (rows + 1);
  rest.a += done * rest.a_stride;
  rest.c += done * rest.c_stride;
  rest.ahead += larger * rest.segments * rest.depth * rest.ahead_step;
  if (part.residual != nullptr) part.residual += done * part.residual_stride;
  kernels[rows - 1](rest, finish == nullptr ? nullptr : &part, blocks - larger);
}

// ---- Winograd

constexpr size_t kTaps = WinogradKernels::kTaps;

// F(2x2, 3x3), of the points 0, 1, -1 and infinity. Each function is for one dimension.
struct SmallTile {
  static constexpr size_t kOut = 2, kIn = 4;
  static constexpr double kFilter[kIn][kTaps] = {
      {1, 0, 0}, {0.5, 0.5, 0.5}, {0.5, -0.5, 0.5}, {0, 0, 1}};

  template <class D, class V>
  static HWY_INLINE void transform_input(D, const V (&x)[kIn], V (&to)[kIn]) {
    to[0] = hn::Sub(x[0], x[2]);
    to[1] = hn::Add(x[1], x[2]);
    to[2] = hn::Sub(x[2], x[1]);
    to[3] = hn::Sub(x[1], x[3]);
  }
  template <class D, class V>
  static HWY_INLINE void transform_output(D, const V (&x)[kIn], V (&to)[kOut]) {
    to[0] = hn::Add(hn::Add(x[0], x[1]), x[2]);
    to[1] = hn::Sub(hn::Sub(x[1], x[2]), x[3]);
  }
};

// F(4x4, 3x3), of the points 0, a, -a, b, -b and infinity, with a * b = 1: their powers, by which
// roundings grow, stay small (with a = 1 and b = 2 errors are twice to three times as large).
struct LargeTile {
  static constexpr size_t kOut = 4, kIn = 6;
  static constexpr double kA = 0.70710678118654752, kB = 2 * kA;
  static constexpr double kA2 = 0.5, kB2 = 2;
  // Of a point p: 1, p and p^2, over the product of its differences to the other ones.
  static constexpr double kOverA = 1 / (2 * kA2 * (kA2 - kB2)),
                          kOverB = 1 / (2 * kB2 * (kB2 - kA2));
  static constexpr double kFilter[kIn][kTaps] = {{1, 0, 0},
                                                 {kOverA, kA* kOverA, kA2* kOverA},
                                                 {kOverA, -kA* kOverA, kA2* kOverA},
                                                 {kOverB, kB* kOverB, kB2* kOverB},
                                                 {kOverB, -kB* kOverB, kB2* kOverB},
                                                 {0, 0, 1}};

  // Of a point p: x times the product of the polynomial's roots other than it.
  template <class D, class V>
  static HWY_INLINE void transform_input(D d, const V (&x)[kIn], V (&to)[kIn]) {
    const V a2 = hn::Set(d, static_cast<float>(kA2)), b2 = hn::Set(d, static_cast<float>(kB2));
    const V sum = hn::Set(d, static_cast<float>(kA2 + kB2));
    const V even_a = hn::NegMulAdd(b2, x[2], x[4]), even_b = hn::NegMulAdd(a2, x[2], x[4]);
    const V a = hn::Set(d, static_cast<float>(kA)), b = hn::Set(d, static_cast<float>(kB));
    const V odd_a = hn::NegMulAdd(b2, x[1], x[3]), odd_b = hn::NegMulAdd(a2, x[1], x[3]);
    to[0] = hn::NegMulAdd(sum, x[2], hn::Add(x[0], x[4]));
    to[1] = hn::MulAdd(a, odd_a, even_a);
    to[2] = hn::NegMulAdd(a, odd_a, even_a);
    to[3] = hn::MulAdd(b, odd_b, even_b);
    to[4] = hn::NegMulAdd(b, odd_b, even_b);
    to[5] = hn::NegMulAdd(sum, x[3], hn::Add(x[1], x[5]));
  }
  // Result i: the sum of x[p] * p^i.
  template <class D, class V>
  static HWY_INLINE void transform_output(D d, const V (&x)[kIn], V (&to)[kOut]) {
    const V even_a = hn::Add(x[1], x[2]), odd_a = hn::Sub(x[1], x[2]);
    const V even_b = hn::Add(x[3], x[4]), odd_b = hn::Sub(x[3], x[4]);
    const auto sum_of = [d](double a, V of_a, double b, V of_b) HWY_ATTR {
      return hn::MulAdd(hn::Set(d, static_cast<float>(a)), of_a,
                        hn::Mul(hn::Set(d, static_cast<float>(b)), of_b));
    };
    to[0] = hn::Add(x[0], hn::Add(even_a, even_b));
    to[1] = sum_of(kA, odd_a, kB, odd_b);
    to[2] = sum_of(kA2, even_a, kB2, even_b);
    to[3] = hn::Add(x[5], sum_of(kA * kA2, odd_a, kB * kB2, odd_b));
  }
};

template <class Tile, class D>
HWY_INLINE void input_lanes(D d, const float* const* pixels, size_t at, float* out,
                            size_t out_stride) {
  constexpr size_t kIn = Tile::kIn;
  using V = hn::Vec<D>;
  V columns[kIn][kIn];
#pragma GCC unroll 6
  for (size_t j = 0; j < kIn; ++j) {
    V x[kIn];
#pragma GCC unroll 6
    for (size_t i = 0; i < kIn; ++i) x[i] = hn::LoadU(d, pixels[i * kIn + j] + at);
    Tile::transform_input(d, x, columns[j]);
  }
#pragma GCC unroll 6
  for (size_t i = 0; i < kIn; ++i) {
    V x[kIn], y[kIn];
#pragma GCC unroll 6
    for (size_t j = 0; j < kIn; ++j) x[j] = columns[j][i];
    Tile::transform_input(d, x, y);
    float* to = out + at + i * kIn * out_stride;
#pragma GCC unroll 6
    for (size_t j = 0; j < kIn; ++j) hn::StoreU(y[j], d, to + j * out_stride);
  }
}

template <class Tile>
void transform_input(const float* const* pixels, size_t channels, float* out, size_t out_stride) {
  size_t at = 0;
  for (; at + kLanes <= channels; at += kLanes) {
    input_lanes<Tile>(kVector, pixels, at, out, out_stride);
  }
  for (; at < channels; ++at) input_lanes<Tile>(OneTag(), pixels, at, out, out_stride);
}

template <class Tile, class D>
HWY_INLINE void output_lanes(D d, const float* in, size_t in_stride, size_t at, const float* bias,
                             const float* const* residual, float min, float max,
                             float* const* pixels) {
  constexpr size_t kIn = Tile::kIn, kOut = Tile::kOut;
  using V = hn::Vec<D>;
  V columns[kIn][kOut];
#pragma GCC unroll 6
  for (size_t j = 0; j < kIn; ++j) {
    V x[kIn];
#pragma GCC unroll 6
    for (size_t i = 0; i < kIn; ++i) x[i] = hn::LoadU(d, in + at + (i * kIn + j) * in_stride);
    Tile::transform_output(d, x, columns[j]);
  }
  const V added = hn::LoadU(d, bias + at);
#pragma GCC unroll 4
  for (size_t i = 0; i < kOut; ++i) {
    V x[kIn], y[kOut];
#pragma GCC unroll 6
    for (size_t j = 0; j < kIn; ++j) x[j] = columns[j][i];
    Tile::transform_output(d, x, y);
#pragma GCC unroll 4
    for (size_t j = 0; j < kOut; ++j) {
      const size_t pixel = i * kOut + j;
      if (pixels[pixel] == nullptr) continue;
      V sum = hn::Add(y[j], added);
      if (residual != nullptr) sum = hn::Add(sum, hn::LoadU(d, residual[pixel] + at));
      hn::StoreU(clamp(sum, hn::Set(d, min), hn::Set(d, max)), d, pixels[pixel] + at);
    }
  }
}

template <class Tile>
void transform_output(const float* in, size_t in_stride, size_t channels, const float* bias,
                      const float* const* residual, float min, float max, float* const* pixels) {
  size_t at = 0;
  for (; at + kLanes <= channels; at += kLanes) {
    output_lanes<Tile>(kVector, in, in_stride, at, bias, residual, min, max, pixels);
  }
  for (; at < channels; ++at) {
    output_lanes<Tile>(OneTag(), in, in_stride, at, bias, residual, min, max, pixels);
  }
}

template <class Tile>
constexpr WinogradKernels winograd(const char* name) {
  return {.name = name,
          .out = Tile::kOut,
          .in = Tile::kIn,
          .filter = Tile::kFilter,
          .transform_input = transform_input<Tile>,
          .transform_output = transform_output<Tile>};
}

// ---- depthwise convolutions

// At once on NEON: images are 7 wide as a rule, or a multiple of it.
constexpr size_t kOutputs = 7;

HWY_INLINE Vector swish(Vector x) {
  const Vector gate =
      clamp(hn::Add(x, hn::Set(kVector, 3)), hn::Zero(kVector), hn::Set(kVector, 6));
  return hn::Mul(hn::Mul(x, gate), hn::Set(kVector, 1.0f / 6));
}

void hardswish(float* x, size_t count) {
  for (size_t at = 0; at < count; at += kLanes) {
    hn::StoreU(swish(hn::LoadU(kVector, x + at)), kVector, x + at);
  }
}

// Neighbouring outputs of a row, `kWide` vectors each, whose taps are `kStep` pixels apart: a pixel
// that several of them read is loaded once. `weights`: of all taps, vector by vector; `from`: the
// first output's rows.
template <size_t kSide, size_t kStep, size_t kCount, size_t kWide, class Weights>
HWY_INLINE void depthwise_outputs(const Weights& weights, const float* const (&from)[kSide],
                                  size_t pixel_stride, Vector (&sum)[kCount][kWide]) {
#pragma GCC unroll 5
  for (size_t i = 0; i < kSide; ++i) {
    Vector taps[kSide][kWide];
#pragma GCC unroll 5
    for (size_t j = 0; j < kSide; ++j) {
#pragma GCC unroll 2
      for (size_t v = 0; v < kWide; ++v) taps[j][v] = weights(i * kSide + j, v);
    }
#pragma GCC unroll 20
    for (size_t x = 0; x < (kCount - 1) * kStep + kSide; ++x) {
#pragma GCC unroll 2
      for (size_t v = 0; v < kWide; ++v) {
        const Vector pixel = hn::LoadU(kVector, from[i] + x * pixel_stride + v * kLanes);
#pragma GCC unroll 8
        for (size_t o = 0; o < kCount; ++o) {
          if (x < o * kStep || x >= o * kStep + kSide) continue;
          sum[o][v] = hn::MulAdd(pixel, taps[x - o * kStep][v], sum[o][v]);
        }
      }
    }
  }
}

// `kStep`: pixels from one output's taps to the next one's, pixels being a panel apart; 0: as `row`
// says.
template <size_t kSide, size_t kStep, size_t kAtOnce, size_t kWide>
HWY_INLINE void depthwise_taps(const DepthwiseRow& row) {
  const Vector min = hn::Set(kVector, row.min), max = hn::Set(kVector, row.max);
  const size_t pixel_stride = kStep == 0 ? row.pixel_stride : kColumns;
  const size_t step = kStep == 0 ? row.step : kStep * kColumns, out_stride = row.out_stride;
  const bool swishes = row.swishes;
  for (size_t at = 0; at < row.columns; at += kWide * kLanes) {
    const auto load = [&](size_t tap, size_t v) HWY_ATTR {
      return hn::LoadU(kVector, row.weights + tap * kColumns + at + v * kLanes);
    };
    Vector bias[kWide], held[kSide * kSide][kWide];
#pragma GCC unroll 2
    for (size_t v = 0; v < kWide; ++v) {
      bias[v] = load(kSide * kSide, v);
#pragma GCC unroll 25
      for (size_t i = 0; i < kSide * kSide; ++i) held[i][v] = load(i, v);
    }
    const auto weights = [&](size_t tap, size_t v) HWY_ATTR {
      // More than there are registers for, beside those of several outputs.
      constexpr bool kFit = kAtOnce == 1 || kSide == 3;
      return kFit ? held[tap][v] : load(tap, v);
    };
    const float* from[kSide];
#pragma GCC unroll 5
    for (size_t i = 0; i < kSide; ++i) from[i] = row.rows[i] + at;
    float* out = row.out + at;
    const auto run = [&]<size_t kCount>(Vector(&sum)[kCount][kWide]) HWY_ATTR {
#pragma GCC unroll 8
      for (size_t o = 0; o < kCount; ++o) {
#pragma GCC unroll 2
        for (size_t v = 0; v < kWide; ++v) sum[o][v] = bias[v];
      }
      depthwise_outputs<kSide, kStep>(weights, from, pixel_stride, sum);
#pragma GCC unroll 5
      for (size_t i = 0; i < kSide; ++i) from[i] += kCount * step;
#pragma GCC unroll 8
      for (size_t o = 0; o < kCount; ++o, out += out_stride) {
#pragma GCC unroll 2
        for (size_t v = 0; v < kWide; ++v) {
          const Vector x = clamp(sum[o][v], min, max);
          hn::StoreU(swishes ? swish(x) : x, kVector, out + v * kLanes);
        }
      }
    };
    size_t left = row.count;
    if constexpr (kAtOnce > 1) {
      for (; left >= kAtOnce; left -= kAtOnce) {
        Vector sum[kAtOnce][kWide];
        run(sum);
      }
    }
    for (; left > 0; --left) {
      Vector sum[1][kWide];
      run(sum);
    }
  }
}

template <size_t kSide>
void depthwise_side(const DepthwiseRow& row) {
  if constexpr (kIsNeon) {
    // Elsewhere the loads are part of the multiplications.
    if (row.pixel_stride == kColumns) {
      if (row.step == kColumns) return depthwise_taps<kSide, 1, kOutputs, 1>(row);
      if (row.step == 2 * kColumns) return depthwise_taps<kSide, 2, kOutputs, 1>(row);
    }
  }
  if constexpr (kHasWideVectors && kSide == 3) {  // whose weights there are registers for
    if (row.columns > kLanes) return depthwise_taps<kSide, 0, 1, kVectors>(row);
  }
  depthwise_taps<kSide, 0, 1, 1>(row);
}

void depthwise(const DepthwiseRow& row) {
  row.side == 3 ? depthwise_side<3>(row) : depthwise_side<5>(row);
}

// ---- attention

HWY_INLINE float largest(const float* x, size_t count) {
  float result = x[0];
  size_t at = 0;
  if (count >= kLanes) {
    Vector most = hn::LoadU(kVector, x);
    for (at = kLanes; at + kLanes <= count; at += kLanes) {
      most = hn::Max(most, hn::LoadU(kVector, x + at));
    }
    result = hn::ReduceMax(kVector, most);
  }
  for (; at < count; ++at) result = x[at] > result ? x[at] : result;
  return result;
}

void exponentials(float* x, size_t stride, size_t rows, size_t columns, float scale, float* sums) {
  for (size_t i = 0; i < rows; ++i, x += stride) {
    const Vector most = hn::Set(kVector, largest(x, columns)), factor = hn::Set(kVector, scale);
    Vector sum = hn::Zero(kVector);
    size_t at = 0;
    for (; at + kLanes <= columns; at += kLanes) {
      const Vector y =
          exp_of_negative(kVector, hn::Mul(hn::Sub(hn::LoadU(kVector, x + at), most), factor));
      hn::StoreU(y, kVector, x + at);
      sum = hn::Add(sum, y);
    }
    if (at < columns) {
      const size_t left = columns - at;
      Vector y = hn::LoadN(kVector, x + at, left);
      y = exp_of_negative(kVector, hn::Mul(hn::Sub(y, most), factor));
      hn::StoreN(y, kVector, x + at, left);
      sum = hn::Add(sum, hn::IfThenElseZero(hn::FirstN(kVector, left), y));
    }
    sums[i] = hn::ReduceSum(kVector, sum);
  }
}

// The sum of term(x, sum so far) over a row.
template <typename Term>
HWY_INLINE float sum_of_row(const float* x, size_t depth, Term term) {
  constexpr size_t kSums = 4;
  Vector sum[kSums];
#pragma GCC unroll 4
  for (size_t j = 0; j < kSums; ++j) sum[j] = hn::Zero(kVector);
  size_t at = 0;
  for (; at + kSums * kLanes <= depth; at += kSums * kLanes) {
#pragma GCC unroll 4
    for (size_t j = 0; j < kSums; ++j) {
      sum[j] = term(hn::LoadU(kVector, x + at + j * kLanes), sum[j]);
    }
  }
  for (; at < depth; at += kLanes) {
    const size_t left = depth - at;
    if (left >= kLanes) {
      sum[0] = term(hn::LoadU(kVector, x + at), sum[0]);
    } else {
      const auto is_there = hn::FirstN(kVector, left);
      sum[1] = hn::IfThenElse(is_there, term(hn::LoadN(kVector, x + at, left), sum[1]), sum[1]);
    }
  }
  return hn::ReduceSum(kVector, hn::Add(hn::Add(sum[0], sum[1]), hn::Add(sum[2], sum[3])));
}

void normalize(const Normalization& all) {
  const float* x = all.in;
  float* out = all.out;
  const Vector mean_factor = hn::Set(kVector, all.mean_factor);
  const Vector square_factor = hn::Set(kVector, all.square_factor);
  for (size_t i = 0; i < all.rows; ++i, x += all.depth, out += all.depth) {
    Vector mean = hn::Zero(kVector);
    if (all.is_centered) {
      const auto add = [&](Vector v, Vector sum) { return hn::MulAdd(v, mean_factor, sum); };
      mean = hn::Set(kVector, sum_of_row(x, all.depth, add) + all.mean_offset);
    }
    const auto add_square = [&](Vector v, Vector sum) {
      const Vector d = hn::Sub(v, mean);
      return hn::MulAdd(hn::Mul(d, d), square_factor, sum);
    };
    const float squares = sum_of_row(x, all.depth, add_square);
    const Vector scale =
        hn::Div(hn::Set(kVector, 1.0f), hn::Sqrt(hn::Set(kVector, squares + all.epsilon)));
    for (size_t at = 0; at < all.depth; at += kLanes) {
      const size_t left = all.depth - at;
      const bool is_whole = left >= kLanes;
      const auto load = [&](const float* from) {
        return is_whole ? hn::LoadU(kVector, from + at) : hn::LoadN(kVector, from + at, left);
      };
      Vector y = hn::Mul(hn::Sub(load(x), mean), scale);
      if (all.weight != nullptr) y = hn::Mul(y, load(all.weight));
      if (all.bias != nullptr) y = hn::Add(y, load(all.bias));
      if (is_whole) {
        hn::StoreU(y, kVector, out + at);
      } else {
        hn::StoreN(y, kVector, out + at, left);
      }
    }
  }
}

void transpose(const float* from, size_t from_stride, size_t rows, size_t columns, float* to,
               size_t to_stride) {
  constexpr size_t kBlock = 16;
  for (size_t j = 0; j < rows; j += kBlock) {
    const size_t end = j + kBlock < rows ? j + kBlock : rows;
    for (size_t i = 0; i < columns; ++i) {
      float* out = to + i * to_stride;
      for (size_t k = j; k < end; ++k) out[k] = from[k * from_stride + i];
    }
  }
}

}  // namespace

const WeightOnlyKernels* weight_only_kernels_of_target();

const FloatKernels* kernels_of_target() {
  static const FloatKernels kKernels = {
      .name = kName,
      .gemm_pays = kHasWideVectors || kIsAvx2 || kIsNeon,
      .depthwise_pays = kHasWideVectors || kIsAvx2 || kIsNeon,
      .is_narrow = kLanes == 4,
      .gemm_limits = kGemmLimits,
      .rows = kRows,
      .columns = kColumns,
      .lanes = kLanes,
      .multiply = multiply,
      .small_winograd = winograd<SmallTile>("Convolution Winograd F(2x2, 3x3)"),
      .large_winograd = winograd<LargeTile>("Convolution Winograd F(4x4, 3x3)"),
      .depthwise = depthwise,
      .hardswish = hardswish,
      .exponentials = exponentials,
      .normalize = normalize,
      .transpose = transpose,
      .weight_only = weight_only_kernels_of_target()};
  return &kKernels;
}
#else
const FloatKernels* kernels_of_target() { return nullptr; }
#endif

}  // namespace HWY_NAMESPACE
}  // namespace edgewise::xnnpack
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace edgewise::xnnpack {
namespace {

HWY_EXPORT(kernels_of_target);

}  // namespace

std::vector<const FloatKernels*> all_float_kernels() {
  std::vector<const FloatKernels*> all;
  const CpuLevel before = cpu_level();
  for (const CpuLevel& level : cpu_levels()) {
    limit_cpu(level);
    const FloatKernels* kernels = HWY_DYNAMIC_DISPATCH(kernels_of_target)();
    if (kernels != nullptr && (all.empty() || all.back() != kernels)) all.push_back(kernels);
  }
  limit_cpu(before);
  return all;
}

const FloatKernels* float_kernels() {
  cpu_level();  // lets EDGEWISE_CPU limit the choice
  const FloatKernels* kernels = HWY_DYNAMIC_DISPATCH(kernels_of_target)();
  if (kernels == nullptr || !is_in_order()) return kernels;
  static const FloatKernels in_order = without_gemms(*kernels);
  return &in_order;
}

FloatKernels without_gemms(FloatKernels kernels) {
  kernels.gemm_pays = false;
  return kernels;
}

}  // namespace edgewise::xnnpack
#endif
