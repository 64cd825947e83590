#include "backends/xnnpack/executor/int8_kernels.h"

#ifdef __aarch64__

#include <arm_neon.h>

#include <cstring>

#include "backends/xnnpack/limit_cpu.h"
#include "core/cpu_level.h"
#include "hwy/base.h"

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

HWY_INLINE int32x4_t scaled(int32x4_t sum, float32x4_t scale) {
  return vcvtnq_s32_f32(vmulq_f32(vcvtq_f32_s32(sum), scale));
}

template <size_t kTileRows>
void multiply_rows(const Int8Tile& tile, const Int8Range& range, size_t blocks) {
  const auto* first = reinterpret_cast<const int8_t*>(tile.a);
  int8_t* c = tile.c;
  const int16x8_t zero_point = vdupq_n_s16(range.zero_point);
  const int8x16_t min = vdupq_n_s8(range.min), max = vdupq_n_s8(range.max);
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
      const int16x4_t half = vqmovn_s32(scaled(sum[i][0], scale[0]));
      const int16x8_t low = vqmovn_high_s32(half, scaled(sum[i][1], scale[1]));
      const int16x4_t other = vqmovn_s32(scaled(sum[i][2], scale[2]));
      const int16x8_t high = vqmovn_high_s32(other, scaled(sum[i][3], scale[3]));
      const int8x8_t narrow = vqmovn_s16(vqaddq_s16(low, zero_point));
      const int8x16_t all = vqmovn_high_s16(narrow, vqaddq_s16(high, zero_point));
      const int8x16_t result = vminq_s8(vmaxq_s8(all, min), max);
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

constexpr Int8Kernels kKernels = {
    .name = "dotprod",
    .rows = kRows,
    .step = kStep,
    .least_depth = 64,
    .least_run = 16,
    .depth_rule = "a depth of 64 or more; of 4 channels or less, 16 numbers in a row of the window",
    .sign_extend = nullptr,
    .multiply = multiply};

}  // namespace

const Int8Kernels* int8_kernels() {
  const bool has_dot_products_alone = cpu_level().extra == CpuLevel::kDotProduct;
  return has_dot_products_alone && !is_in_order() ? &kKernels : nullptr;
}

}  // namespace edgewise::xnnpack

#endif
