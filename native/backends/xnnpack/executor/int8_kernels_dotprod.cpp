#include "backends/xnnpack/executor/int8_kernels.h"

#ifdef __aarch64__

#include <arm_neon.h>

#include <cstring>

#include "backends/xnnpack/limit_cpu.h"
#include "core/cpu_level.h"
#include "hwy/base.h"

// Clang 14 does not look at `.arch` below, others do.
#ifdef __clang__
#pragma clang attribute push(__attribute__((target("dotprod"))), apply_to = function)
#endif

namespace edgewise::xnnpack {
namespace {

constexpr size_t kRows = 5;
constexpr size_t kStep = 4;
constexpr size_t kVectors = kInt8Columns / 4;
constexpr size_t kBytes = 16;  // of a vector

// Step `kLane` of those for which each row has one vector. In assembly, with named registers: or
// compilers, which have to find four in a row, move sums about.
template <size_t kLane, size_t kTileRows>
HWY_INLINE void add_step(const int8x16_t (&x)[kTileRows], const int8_t*& panel,
                         int32x4_t (&sum)[kTileRows][kVectors]) {
  register int8x16_t b0 __asm__("v28");
  register int8x16_t b1 __asm__("v29");
  register int8x16_t b2 __asm__("v30");
  register int8x16_t b3 __asm__("v31");
  __asm__ volatile("ld1 {v28.16b, v29.16b, v30.16b, v31.16b}, [%4], #64"
                   : "=w"(b0), "=w"(b1), "=w"(b2), "=w"(b3), "+r"(panel)
                   :
                   : "memory");
  const int8x16_t b[kVectors] = {b0, b1, b2, b3};
#pragma GCC unroll 8
  for (size_t i = 0; i < kTileRows; ++i) {
#pragma GCC unroll 4
    for (size_t j = 0; j < kVectors; ++j) {
      __asm__ volatile(".arch armv8.2-a+dotprod\n\tsdot %0.4s, %1.16b, %2.4b[%3]"
                       : "+w"(sum[i][j])
                       : "w"(b[j]), "w"(x[i]), "i"(kLane));
    }
  }
}

// The products of `depth` bytes are added; `a` and `panel` move past them.
template <size_t kTileRows>
HWY_INLINE void add_segment(size_t depth, const int8_t* (&a)[kTileRows], const int8_t*& panel,
                            int32x4_t (&sum)[kTileRows][kVectors]) {
  for (size_t steps = depth / kBytes; steps > 0; --steps) {
    int8x16_t x[kTileRows];
#pragma GCC unroll 8
    for (size_t i = 0; i < kTileRows; ++i) {
      x[i] = vld1q_s8(a[i]);
      a[i] += kBytes;
      __asm__("" : "+r"(a[i]));
    }
    add_step<0>(x, panel, sum);
    add_step<1>(x, panel, sum);
    add_step<2>(x, panel, sum);
    add_step<3>(x, panel, sum);
  }
  for (size_t steps = depth % kBytes / kStep; steps > 0; --steps) {
    int8x16_t x[kTileRows];
#pragma GCC unroll 8
    for (size_t i = 0; i < kTileRows; ++i) {
      int32_t four;
      std::memcpy(&four, a[i], sizeof(four));
      x[i] = vreinterpretq_s8_s32(vdupq_n_s32(four));
      a[i] += kStep;
    }
    add_step<0>(x, panel, sum);
  }
}

// From sums to results.
struct Finish {
  explicit Finish(const Int8Range& range)
      : zero_point(vdupq_n_s16(range.zero_point)),
        min(vdupq_n_s8(range.min)),
        max(vdupq_n_s8(range.max)) {}

  HWY_INLINE int8x16_t operator()(const int32x4_t (&sum)[kVectors],
                                  const float32x4_t (&scale)[kVectors]) const {
    const int16x4_t half = vqmovn_s32(scaled(sum[0], scale[0]));
    const int16x8_t low = vqmovn_high_s32(half, scaled(sum[1], scale[1]));
    const int16x4_t other = vqmovn_s32(scaled(sum[2], scale[2]));
    const int16x8_t high = vqmovn_high_s32(other, scaled(sum[3], scale[3]));
    const int8x8_t narrow = vqmovn_s16(vqaddq_s16(low, zero_point));
    const int8x16_t all = vqmovn_high_s16(narrow, vqaddq_s16(high, zero_point));
    return vminq_s8(vmaxq_s8(all, min), max);
  }

  static HWY_INLINE int32x4_t scaled(int32x4_t sum, float32x4_t scale) {
    return vcvtnq_s32_f32(vmulq_f32(vcvtq_f32_s32(sum), scale));
  }

  const int16x8_t zero_point;
  const int8x16_t min, max;
};

template <size_t kTileRows>
void multiply_rows(const Int8Tile& tile, const Int8Range& range, size_t blocks) {
  const auto* first = reinterpret_cast<const int8_t*>(tile.a);
  int8_t* c = tile.c;
  const Finish finish(range);
  for (; blocks > 0; --blocks) {
    const int8_t* a[kTileRows];
    int32x4_t sum[kTileRows][kVectors];
#pragma GCC unroll 8
    for (size_t i = 0; i < kTileRows; ++i, first += tile.a_stride) {
      a[i] = first;
#pragma GCC unroll 4
      for (size_t j = 0; j < kVectors; ++j) sum[i][j] = vld1q_s32(tile.bias + 4 * j);
    }
    const int8_t* panel = tile.panel;
    for (size_t segment = tile.segments;;) {
      add_segment(tile.depth, a, panel, sum);
      if (--segment == 0) break;
#pragma GCC unroll 8
      for (size_t i = 0; i < kTileRows; ++i) a[i] += tile.segment_stride - tile.depth;
    }
    float32x4_t scale[kVectors];
#pragma GCC unroll 4
    for (size_t j = 0; j < kVectors; ++j) scale[j] = vld1q_f32(tile.scales + 4 * j);
#pragma GCC unroll 8
    for (size_t i = 0; i < kTileRows; ++i, c += tile.c_stride) {
      const int8x16_t result = finish(sum[i], scale);
      if (tile.columns == kInt8Columns) {
        vst1q_s8(c, result);
      } else {
        int8_t bytes[kInt8Columns];
        vst1q_s8(bytes, result);
        std::memcpy(c, bytes, tile.columns);
      }
    }
  }
}

constexpr Int8MultiplyRows kMultiplyRows[kRows] = {
    multiply_rows<1>, multiply_rows<2>, multiply_rows<3>, multiply_rows<4>, multiply_rows<5>};

void multiply(const Int8Tile& tile, const Int8Range& range) {
  multiply_in_blocks(kMultiplyRows, tile, range);
}

HWY_INLINE int8x16_t load_next(const int8_t*& from, size_t step) {
  int8x16_t x;
  __asm__ volatile("ld1 {%0.16b}, [%1], %2" : "=w"(x), "+r"(from) : "r"(step) : "memory");
  return x;
}

// The numbers of a channel of four vectors become neighbours. `to` moves by `step`.
HWY_INLINE void interleave(int8x16_t a, int8x16_t b, int8x16_t c, int8x16_t d, std::byte*& to,
                           size_t step) {
  const int8x16_t low_ab = vzip1q_s8(a, b), high_ab = vzip2q_s8(a, b);
  const int8x16_t low_cd = vzip1q_s8(c, d), high_cd = vzip2q_s8(c, d);
  __asm__ volatile(
      "zip1 v28.8h, %1.8h, %3.8h\n\t"
      "zip2 v29.8h, %1.8h, %3.8h\n\t"
      "zip1 v30.8h, %2.8h, %4.8h\n\t"
      "zip2 v31.8h, %2.8h, %4.8h\n\t"
      "st1 {v28.16b, v29.16b, v30.16b, v31.16b}, [%0], %5"
      : "+r"(to)
      : "w"(low_ab), "w"(high_ab), "w"(low_cd), "w"(high_cd), "r"(step)
      : "v28", "v29", "v30", "v31", "memory");
}

// A group of numbers times its weights. `x` moves by `step`.
HWY_INLINE void add_group(const std::byte*& x, size_t step, const int8x16_t (&weights)[kVectors],
                          int32x4_t (&sum)[kVectors]) {
  __asm__ volatile(
      ".arch armv8.2-a+dotprod\n\t"
      "ld1 {v28.16b, v29.16b, v30.16b, v31.16b}, [%4], %9\n\t"
      "sdot %0.4s, v28.16b, %5.16b\n\t"
      "sdot %1.4s, v29.16b, %6.16b\n\t"
      "sdot %2.4s, v30.16b, %7.16b\n\t"
      "sdot %3.4s, v31.16b, %8.16b"
      : "+w"(sum[0]), "+w"(sum[1]), "+w"(sum[2]), "+w"(sum[3]), "+r"(x)
      : "w"(weights[0]), "w"(weights[1]), "w"(weights[2]), "w"(weights[3]), "r"(step)
      : "v28", "v29", "v30", "v31", "memory");
}

template <size_t kSize>
void depthwise(const Int8DepthwiseRow& row, const Int8Range& range) {
  constexpr Int8DepthwiseGroups kGroups{kSize, kStep};
  constexpr size_t kGroup = Int8DepthwiseKernels::kGroupBytes;
  constexpr size_t kPixel = kGroups.of_pixel() * kGroup;
  constexpr size_t kAll = kGroups.all(), kLastGroups = kGroups.of_last_row();
  static_assert(kGroups.of_rows() == 1);
  const size_t end = row.before + row.count;
  std::memset(row.scratch, row.zero, row.before * kPixel);
  std::memset(row.scratch + end * kPixel, row.zero, (row.pixels - end) * kPixel);
  std::byte* to = row.scratch + row.before * kPixel;
  const int8_t *a = row.rows[0], *b = row.rows[1], *c = row.rows[2], *d = row.rows[3];
  for (size_t x = 0; x < row.count; ++x) {
    const int8x16_t first = load_next(a, row.steps[0]), second = load_next(b, row.steps[1]);
    const int8x16_t third = load_next(c, row.steps[2]);
    interleave(first, second, third, kSize > 3 ? load_next(d, row.steps[3]) : third, to, kPixel);
  }
  if constexpr (kGroups.has_last_row()) {
    to = row.scratch + kGroup;
    for (size_t x = 0; x < row.pixels; ++x) {
      const int8_t* from = row.last + x * kInt8Columns;
      interleave(vld1q_s8(from), vld1q_s8(from + kInt8Columns), vld1q_s8(from + 2 * kInt8Columns),
                 vld1q_s8(from + 3 * kInt8Columns), to, kPixel);
    }
  }
  int32x4_t bias[kVectors];
  float32x4_t scale[kVectors];
  int8x16_t weights[kAll][kVectors];
#pragma GCC unroll 4
  for (size_t j = 0; j < kVectors; ++j) {
    bias[j] = vld1q_s32(row.bias + 4 * j);
    scale[j] = vld1q_f32(row.scales + 4 * j);
#pragma GCC unroll 8
    for (size_t i = 0; i < kAll; ++i) {
      weights[i][j] =
          vld1q_s8(reinterpret_cast<const int8_t*>(row.weights) + i * kGroup + j * kBytes);
    }
  }
  const Finish finish(range);
  const std::byte* first = row.scratch;
  int8_t* result = row.c;
  for (size_t x = 0; x < row.results; ++x, first += row.stride * kPixel, result += row.c_stride) {
    int32x4_t sum[kVectors] = {bias[0], bias[1], bias[2], bias[3]};
    const std::byte* from = first;
#pragma GCC unroll 8
    for (size_t i = 0; i < kSize; ++i) add_group(from, kPixel, weights[i], sum);
    if constexpr (kGroups.has_last_row()) {
      from = first + kGroup;
#pragma GCC unroll 2
      for (size_t i = 0; i < kLastGroups; ++i) {
        add_group(from, kStep * kPixel, weights[kSize + i], sum);
      }
    }
    vst1q_s8(result, finish(sum, scale));
  }
}

constexpr Int8DepthwiseKernels kDepthwise = {.name = "dotprod",
                                             .together = kStep,
                                             .swaps_fours = false,
                                             .offset = 0,
                                             .run3 = depthwise<3>,
                                             .run5 = depthwise<5>};

constexpr Int8Kernels kKernels = {
    .name = "dotprod",
    .rows = kRows,
    .columns = kInt8Columns,
    .step = kStep,
    .least_depth = 64,
    .least_run = 16,
    .depth_rule = "a depth of 64 or more; of 4 channels or less, 16 numbers in a row of the window",
    .needs_full_panels = true,
    .number_bytes = 1,
    .offset = 0,
    .convert = nullptr,
    .multiply = multiply,
    .add = nullptr};

}  // namespace

#ifdef __clang__
#pragma clang attribute pop
#endif

const Int8Kernels* int8_kernels() {
  const bool has_dot_products_alone = cpu_level().extra == CpuLevel::kDotProduct;
  return has_dot_products_alone && !is_in_order() ? &kKernels : nullptr;
}

const Int8DepthwiseKernels* int8_depthwise_kernels() {
  return cpu_level().extra >= CpuLevel::kDotProduct && !is_in_order() ? &kDepthwise : nullptr;
}

}  // namespace edgewise::xnnpack

#endif
