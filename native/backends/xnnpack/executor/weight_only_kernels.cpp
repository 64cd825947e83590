#include "backends/xnnpack/executor/weight_only_kernels.h"

#include "core/cpu_level.h"

#define EDGEWISE_TARGETS_WITHOUT HWY_SSE4
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/xnnpack/executor/weight_only_kernels.cpp"
#include "core/simd_foreach.h"
// Needs the target.
#include "core/simd_math-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace edgewise::xnnpack {
namespace HWY_NAMESPACE {
#if HWY_NATIVE_FMA
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using simd::HWY_NAMESPACE::clamp;
constexpr hn::ScalableTag<float> kFloats;
constexpr hn::RebindToSigned<decltype(kFloats)> kInts;
constexpr hn::RebindToUnsigned<decltype(kFloats)> kBits;
constexpr hn::Rebind<int8_t, decltype(kFloats)> kBytes;
constexpr hn::Rebind<uint8_t, decltype(kFloats)> kPairs;  // of nibbles
constexpr hn::Rebind<uint16_t, decltype(kFloats)> kHalves;
using Floats = hn::Vec<decltype(kFloats)>;

constexpr size_t kLanes = hn::MaxLanes(kFloats);
constexpr size_t kVectors = HWY_ARCH_ARM_A64 ? 4 : 2;
constexpr size_t kColumns = kVectors * kLanes;

HWY_INLINE Floats byte_at(const std::byte* from) {
  const auto bytes = hn::LoadU(kBytes, reinterpret_cast<const int8_t*>(from));
  return hn::ConvertTo(kFloats, hn::PromoteTo(kInts, bytes));
}

struct TwoRows {
  Floats first, second;
};

HWY_INLINE TwoRows nibbles_at(const std::byte* from) {
  const auto pairs =
      hn::PromoteTo(kInts, hn::LoadU(kPairs, reinterpret_cast<const uint8_t*>(from)));
  const auto zero = hn::Set(kInts, 8);
  return {hn::ConvertTo(kFloats, hn::Sub(hn::And(pairs, hn::Set(kInts, 15)), zero)),
          hn::ConvertTo(kFloats, hn::Sub(hn::ShiftRight<4>(pairs), zero))};
}

HWY_INLINE void load_scales(const WeightOnlyPanel& panel, size_t block, Floats (&scale)[kVectors]) {
#pragma GCC unroll 4
  for (size_t j = 0; j < kVectors; ++j) {
    const size_t at = block * kColumns + j * kLanes;
    if (panel.has_short_scales) {
      const auto* from = reinterpret_cast<const uint16_t*>(panel.scales) + at;
      const auto bits = hn::PromoteTo(kBits, hn::LoadU(kHalves, from));
      scale[j] = hn::BitCast(kFloats, hn::ShiftLeft<16>(bits));
    } else {
      scale[j] = hn::LoadU(kFloats, reinterpret_cast<const float*>(panel.scales) + at);
    }
  }
}

void dequantize(const WeightOnlyPanel& panel, size_t first, size_t count, float* to) {
  for (const size_t end = first + count; first < end;) {
    Floats scale[kVectors];
    load_scales(panel, first / panel.block, scale);
    const size_t of_block = first - first % panel.block + panel.block;
    const size_t stop = of_block < end ? of_block : end;
    if (panel.has_nibbles) {
      for (; first < stop; first += 2, to += 2 * kColumns) {
        const std::byte* from = panel.weights + first / 2 * kColumns;
#pragma GCC unroll 4
        for (size_t j = 0; j < kVectors; ++j) {
          const TwoRows rows = nibbles_at(from + j * kLanes);
          hn::StoreU(hn::Mul(rows.first, scale[j]), kFloats, to + j * kLanes);
          hn::StoreU(hn::Mul(rows.second, scale[j]), kFloats, to + kColumns + j * kLanes);
        }
      }
      continue;
    }
    for (; first < stop; ++first, to += kColumns) {
      const std::byte* from = panel.weights + first * kColumns;
#pragma GCC unroll 4
      for (size_t j = 0; j < kVectors; ++j) {
        hn::StoreU(hn::Mul(byte_at(from + j * kLanes), scale[j]), kFloats, to + j * kLanes);
      }
    }
  }
}

// Two rows of weights at a time, into sums of their own if there are registers: additions wait for
// each other else.
template <size_t kRows>
constexpr size_t kSums = kRows <= 2 ? 2 : 1;

template <size_t kRows, size_t kStep>
HWY_INLINE void add_row(const Floats (&weights)[kVectors], const float* a, size_t a_stride,
                        Floats (&sum)[kRows][kVectors]) {
#pragma GCC unroll 4
  for (size_t i = 0; i < kRows; ++i) {
    const Floats x = hn::Set(kFloats, a[i * a_stride + kStep]);
#pragma GCC unroll 4
    for (size_t j = 0; j < kVectors; ++j) sum[i][j] = hn::MulAdd(x, weights[j], sum[i][j]);
  }
}

// The weights of the block's rows are added, without their scale; `from` moves past them.
template <size_t kRows, bool kHasNibbles>
HWY_INLINE void add_block(size_t count, const std::byte*& from, const float* a, size_t a_stride,
                          Floats (&sum)[kSums<kRows>][kRows][kVectors]) {
  constexpr size_t kAhead = 2048;  // bytes from what is read
  for (; count >= 2; count -= 2, a += 2) {
    Floats first[kVectors], second[kVectors];
#pragma GCC unroll 4
    for (size_t j = 0; j < kVectors; ++j) {
      if constexpr (kHasNibbles) {
        const TwoRows rows = nibbles_at(from + j * kLanes);
        first[j] = rows.first;
        second[j] = rows.second;
      } else {
        first[j] = byte_at(from + j * kLanes);
        second[j] = byte_at(from + kColumns + j * kLanes);
      }
    }
    __builtin_prefetch(from + kAhead, 0, 3);
    from += (kHasNibbles ? 1 : 2) * kColumns;
    add_row<kRows, 0>(first, a, a_stride, sum[0]);
    add_row<kRows, 1>(second, a, a_stride, sum[kSums<kRows> - 1]);
  }
  if (count == 0) return;
  Floats last[kVectors];
#pragma GCC unroll 4
  for (size_t j = 0; j < kVectors; ++j) {
    last[j] = kHasNibbles ? nibbles_at(from + j * kLanes).first : byte_at(from + j * kLanes);
  }
  from += kColumns;
  add_row<kRows, 0>(last, a, a_stride, sum[0]);
}

template <size_t kRows, bool kHasNibbles>
void multiply_rows(const WeightOnlyPanel& panel, const WeightOnlyTile& tile) {
  Floats total[kRows][kVectors];
#pragma GCC unroll 4
  for (size_t i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
    for (size_t j = 0; j < kVectors; ++j) total[i][j] = hn::LoadU(kFloats, tile.bias + j * kLanes);
  }
  const std::byte* weights = panel.weights;
  for (size_t block = 0, at = 0; at < panel.depth; ++block, at += panel.block) {
    Floats sum[kSums<kRows>][kRows][kVectors];
#pragma GCC unroll 2
    for (size_t k = 0; k < kSums<kRows>; ++k) {
#pragma GCC unroll 4
      for (size_t i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
        for (size_t j = 0; j < kVectors; ++j) sum[k][i][j] = hn::Zero(kFloats);
      }
    }
    const size_t left = panel.depth - at;
    add_block<kRows, kHasNibbles>(panel.block < left ? panel.block : left, weights, tile.a + at,
                                  tile.a_stride, sum);
    Floats scale[kVectors];
    load_scales(panel, block, scale);
#pragma GCC unroll 4
    for (size_t i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
      for (size_t j = 0; j < kVectors; ++j) {
        Floats all = sum[0][i][j];
        if constexpr (kSums<kRows> == 2) all = hn::Add(all, sum[1][i][j]);
        total[i][j] = hn::MulAdd(all, scale[j], total[i][j]);
      }
    }
  }
  const Floats min = hn::Set(kFloats, tile.min), max = hn::Set(kFloats, tile.max);
#pragma GCC unroll 4
  for (size_t i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
    for (size_t j = 0; j < kVectors; ++j) {
      const size_t first = j * kLanes;
      if (first >= tile.columns) break;
      const size_t count = tile.columns - first, at = i * tile.c_stride + first;
      Floats x = total[i][j];
      if (tile.residual != nullptr) {
        x = hn::Add(x, hn::LoadN(kFloats, tile.residual + at, count));
      }
      hn::StoreN(clamp(x, min, max), kFloats, tile.c + at, count);
    }
  }
}

using Multiply = void (*)(const WeightOnlyPanel&, const WeightOnlyTile&);
// [i] is for i + 1 rows.
template <bool kHasNibbles>
constexpr Multiply kByRows[WeightOnlyKernels::kFewRows] = {
    multiply_rows<1, kHasNibbles>, multiply_rows<2, kHasNibbles>, multiply_rows<3, kHasNibbles>,
    multiply_rows<4, kHasNibbles>};

void multiply(const WeightOnlyPanel& panel, const WeightOnlyTile& tile) {
  (panel.has_nibbles ? kByRows<true> : kByRows<false>)[tile.rows - 1](panel, tile);
}

constexpr WeightOnlyKernels kKernels = {.dequantize = dequantize, .multiply = multiply};

}  // namespace

const WeightOnlyKernels* weight_only_kernels_of_target() { return &kKernels; }
#else
const WeightOnlyKernels* weight_only_kernels_of_target() { return nullptr; }
#endif

}  // namespace HWY_NAMESPACE
}  // namespace edgewise::xnnpack
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace edgewise::xnnpack {
namespace {

HWY_EXPORT(weight_only_kernels_of_target);

}  // namespace

const WeightOnlyKernels* weight_only_kernels() {
  cpu_level();  // lets EDGEWISE_CPU limit the choice
  return HWY_DYNAMIC_DISPATCH(weight_only_kernels_of_target)();
}

}  // namespace edgewise::xnnpack
#endif
