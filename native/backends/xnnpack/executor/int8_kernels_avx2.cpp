#include "backends/xnnpack/executor/int8_kernels.h"

#ifdef __x86_64__

#include <cstring>

#include "backends/xnnpack/limit_cpu.h"
#include "core/cpu_level.h"

#define EDGEWISE_TARGETS_WITHOUT (HWY_SSE4 | HWY_AVX3)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/xnnpack/executor/int8_kernels_avx2.cpp"
#include "core/simd_foreach.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace edgewise::xnnpack {
namespace HWY_NAMESPACE {
#if HWY_TARGET == HWY_AVX2
namespace {

namespace hn = hwy::HWY_NAMESPACE;
constexpr hn::ScalableTag<int16_t> kWords;
constexpr hn::ScalableTag<int32_t> kSums;
constexpr hn::ScalableTag<float> kFloats;
constexpr hn::Half<hn::ScalableTag<int8_t>> kBytes;  // as many as words
using Sums = hn::Vec<decltype(kSums)>;

constexpr size_t kRows = 6;  // with two vectors of sums each, and what lies between, all registers
constexpr size_t kStep = 2;
constexpr size_t kVectors = 2;
constexpr size_t kLanes = kInt8Columns / kVectors;
constexpr size_t kRowsOfBase = 4;

void sign_extend(const int8_t* from, size_t count, int16_t* to) {
  constexpr size_t kAtOnce = 2 * kLanes;
  size_t at = 0;
  for (; at + kAtOnce <= count; at += kAtOnce) {
    hn::StoreU(hn::PromoteTo(kWords, hn::LoadU(kBytes, from + at)), kWords, to + at);
  }
  for (; at < count; ++at) to[at] = from[at];
}

// The products of a segment are added, two at a time; `a` and `panel` move past them.
template <size_t kTileRows, size_t kBases>
HWY_INLINE void add_segment(size_t depth, const std::byte* (&a)[kBases], size_t a_stride,
                            const int8_t*& panel, Sums (&sum)[kTileRows][kVectors]) {
  for (size_t steps = depth / kStep; steps > 0; --steps) {
    hn::Vec<decltype(kWords)> b[kVectors];
#pragma GCC unroll 2
    for (size_t j = 0; j < kVectors; ++j) {
      b[j] = hn::PromoteTo(kWords, hn::LoadU(kBytes, panel + j * kLanes * kStep));
    }
    panel += kInt8Columns * kStep;
#pragma GCC unroll 8
    for (size_t i = 0; i < kTileRows; ++i) {
      int32_t two;
      std::memcpy(&two, a[i / kRowsOfBase] + i % kRowsOfBase * a_stride, sizeof(two));
      const auto x = hn::BitCast(kWords, hn::Set(kSums, two));
#pragma GCC unroll 2
      for (size_t j = 0; j < kVectors; ++j) {
        sum[i][j] = hn::Add(sum[i][j], hn::WidenMulPairwiseAdd(kSums, x, b[j]));
      }
    }
#pragma GCC unroll 2
    for (size_t i = 0; i < kBases; ++i) a[i] += kStep * sizeof(int16_t);
  }
}

template <size_t kTileRows>
void multiply_rows(const Int8Tile& tile, const Int8Range& range, size_t blocks) {
  constexpr size_t kBases = (kTileRows + kRowsOfBase - 1) / kRowsOfBase;
  const std::byte* first = tile.a;
  int8_t* c = tile.c;
  for (; blocks > 0; --blocks) {
    // From one pointer, compilers keep a distance for each row and spill them.
    const std::byte* a[kBases];
#pragma GCC unroll 2
    for (size_t i = 0; i < kBases; ++i) {
      a[i] = first + i * kRowsOfBase * tile.a_stride;
      __asm__("" : "+r"(a[i]));
    }
    first += kTileRows * tile.a_stride;
    Sums sum[kTileRows][kVectors];
#pragma GCC unroll 8
    for (size_t i = 0; i < kTileRows; ++i) {
#pragma GCC unroll 2
      for (size_t j = 0; j < kVectors; ++j) sum[i][j] = hn::LoadU(kSums, tile.bias + j * kLanes);
    }
    const int8_t* panel = tile.panel;
    for (size_t segment = tile.segments;;) {
      add_segment(tile.depth, a, tile.a_stride, panel, sum);
      if (--segment == 0) break;
#pragma GCC unroll 2
      for (size_t i = 0; i < kBases; ++i) {
        a[i] += tile.segment_stride - tile.depth * sizeof(int16_t);
      }
    }
    // Before it becomes an integer, or what is too large would become the smallest one.
    const auto most = hn::Set(kFloats, static_cast<float>(range.max - range.zero_point));
    const auto scaled = [&](Sums x, size_t j) HWY_ATTR {
      const auto scale = hn::LoadU(kFloats, tile.scales + j * kLanes);
      return hn::NearestInt(hn::Min(hn::Mul(hn::ConvertTo(kFloats, x), scale), most));
    };
#pragma GCC unroll 8
    for (size_t i = 0; i < kTileRows; ++i, c += tile.c_stride) {
      const auto steps = hn::OrderedDemote2To(kWords, scaled(sum[i][0], 0), scaled(sum[i][1], 1));
      const auto shifted = hn::SaturatedAdd(steps, hn::Set(kWords, range.zero_point));
      const auto result = hn::Max(hn::DemoteTo(kBytes, shifted), hn::Set(kBytes, range.min));
      if (tile.columns == kInt8Columns) {
        hn::StoreU(result, kBytes, c);
      } else {
        hn::StoreN(result, kBytes, c, tile.columns);
      }
    }
  }
}

constexpr Int8MultiplyRows kMultiplyRows[kRows] = {multiply_rows<1>, multiply_rows<2>,
                                                   multiply_rows<3>, multiply_rows<4>,
                                                   multiply_rows<5>, multiply_rows<6>};

void multiply(const Int8Tile& tile, const Int8Range& range) {
  multiply_in_blocks(kMultiplyRows, tile, range);
}

constexpr Int8Kernels kKernels = {
    .name = "avx2",
    .rows = kRows,
    .step = kStep,
    .least_depth = 16,
    .least_run = 6,
    .depth_rule = "a depth of 16 or more; of 4 channels or less, 6 numbers in a row of the window",
    .sign_extend = sign_extend,
    .multiply = multiply};

}  // namespace

const Int8Kernels* int8_kernels_of_target() { return &kKernels; }
#else
const Int8Kernels* int8_kernels_of_target() { return nullptr; }
#endif

}  // namespace HWY_NAMESPACE
}  // namespace edgewise::xnnpack
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace edgewise::xnnpack {
namespace {

HWY_EXPORT(int8_kernels_of_target);

}  // namespace

const Int8Kernels* int8_kernels() {
  const bool is_avx2 = cpu_level().target == HWY_AVX2;
  return is_avx2 && !has_avx_vnni() ? HWY_DYNAMIC_DISPATCH(int8_kernels_of_target)() : nullptr;
}

}  // namespace edgewise::xnnpack
#endif

#endif
