#include "backends/xnnpack/executor/weight_only_kernels.h"

#define EDGEWISE_TARGETS_WITHOUT HWY_SSE4
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/xnnpack/executor/weight_only_kernels.cpp"
#include "core/simd_foreach.h"
// Needs the target.
#include "core/simd_half-inl.h"
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

struct TwoRows {
  Floats first, second;
};

constexpr size_t bytes_of(WeightForm form) { return form == WeightForm::kHalves ? 2 : 1; }

// One weight of each column of a vector; of nibbles those of the first of two rows.
template <WeightForm kForm>
HWY_INLINE Floats row_at(const std::byte* from);

template <>
HWY_INLINE Floats row_at<WeightForm::kBytes>(const std::byte* from) {
  const auto bytes = hn::LoadU(kBytes, reinterpret_cast<const int8_t*>(from));
  return hn::ConvertTo(kFloats, hn::PromoteTo(kInts, bytes));
}

template <>
HWY_INLINE Floats row_at<WeightForm::kHalves>(const std::byte* from) {
  return simd::HWY_NAMESPACE::from_float16(
      kFloats, hn::LoadU(kHalves, reinterpret_cast<const uint16_t*>(from)));
}

HWY_INLINE TwoRows nibbles_at(const std::byte* from) {
  const auto pairs =
      hn::PromoteTo(kInts, hn::LoadU(kPairs, reinterpret_cast<const uint8_t*>(from)));
  const auto zero = hn::Set(kInts, 8);
  return {hn::ConvertTo(kFloats, hn::Sub(hn::And(pairs, hn::Set(kInts, 15)), zero)),
          hn::ConvertTo(kFloats, hn::Sub(hn::ShiftRight<4>(pairs), zero))};
}

template <>
HWY_INLINE Floats row_at<WeightForm::kNibbles>(const std::byte* from) {
  return nibbles_at(from).first;
}

// Of two rows, `j` vectors from a panel's first column.
template <WeightForm kForm>
HWY_INLINE TwoRows two_rows_at(const std::byte* from, size_t j) {
  if constexpr (kForm == WeightForm::kNibbles) return nibbles_at(from + j * kLanes);
  const std::byte* at = from + j * kLanes * bytes_of(kForm);
  return {row_at<kForm>(at), row_at<kForm>(at + kColumns * bytes_of(kForm))};
}

template <WeightForm kForm>
constexpr size_t kTwoRowsBytes =
    (kForm == WeightForm::kNibbles ? 1 : 2) * kColumns* bytes_of(kForm);

HWY_INLINE void load_scales(const WeightOnlyPanel& panel, size_t block, Floats (&scale)[kVectors]) {
#pragma GCC unroll 4
  for (size_t j = 0; j < kVectors; ++j) {
    const size_t at = block * kColumns + j * kLanes;
    if (panel.scales == nullptr) {
      scale[j] = hn::Set(kFloats, 1);
    } else if (panel.has_short_scales) {
      const auto* from = reinterpret_cast<const uint16_t*>(panel.scales) + at;
      const auto bits = hn::PromoteTo(kBits, hn::LoadU(kHalves, from));
      scale[j] = hn::BitCast(kFloats, hn::ShiftLeft<16>(bits));
    } else {
      scale[j] = hn::LoadU(kFloats, reinterpret_cast<const float*>(panel.scales) + at);
    }
  }
}

template <WeightForm kForm>
void dequantize_form(const WeightOnlyPanel& panel, size_t first, size_t count, float* to) {
  const std::byte* from = panel.weights + first * kTwoRowsBytes<kForm> / 2;
  for (const size_t end = first + count; first < end;) {
    Floats scale[kVectors];
    load_scales(panel, first / panel.block, scale);
    const size_t of_block = first - first % panel.block + panel.block;
    const size_t stop = of_block < end ? of_block : end;
    for (; first + 2 <= stop; first += 2, from += kTwoRowsBytes<kForm>, to += 2 * kColumns) {
#pragma GCC unroll 4
      for (size_t j = 0; j < kVectors; ++j) {
        const TwoRows rows = two_rows_at<kForm>(from, j);
        hn::StoreU(hn::Mul(rows.first, scale[j]), kFloats, to + j * kLanes);
        hn::StoreU(hn::Mul(rows.second, scale[j]), kFloats, to + kColumns + j * kLanes);
      }
    }
    if (first == stop) continue;
#pragma GCC unroll 4
    for (size_t j = 0; j < kVectors; ++j) {
      const Floats row = row_at<kForm>(from + j * kLanes * bytes_of(kForm));
      hn::StoreU(hn::Mul(row, scale[j]), kFloats, to + j * kLanes);
    }
    ++first;
    from += kColumns * bytes_of(kForm);
    to += kColumns;
  }
}

void dequantize(const WeightOnlyPanel& panel, size_t first, size_t count, float* to) {
  switch (panel.form) {
    case WeightForm::kBytes:
      return dequantize_form<WeightForm::kBytes>(panel, first, count, to);
    case WeightForm::kNibbles:
      return dequantize_form<WeightForm::kNibbles>(panel, first, count, to);
    case WeightForm::kHalves:
      return dequantize_form<WeightForm::kHalves>(panel, first, count, to);
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
template <size_t kRows, WeightForm kForm>
HWY_INLINE void add_block(size_t count, const std::byte*& from, const float* a, size_t a_stride,
                          Floats (&sum)[kSums<kRows>][kRows][kVectors]) {
  constexpr size_t kAhead = 2048;  // bytes from what is read
  for (; count >= 2; count -= 2, a += 2) {
    Floats first[kVectors], second[kVectors];
#pragma GCC unroll 4
    for (size_t j = 0; j < kVectors; ++j) {
      const TwoRows rows = two_rows_at<kForm>(from, j);
      first[j] = rows.first;
      second[j] = rows.second;
    }
    __builtin_prefetch(from + kAhead, 0, 3);
    from += kTwoRowsBytes<kForm>;
    add_row<kRows, 0>(first, a, a_stride, sum[0]);
    add_row<kRows, 1>(second, a, a_stride, sum[kSums<kRows> - 1]);
  }
  if (count == 0) return;
  Floats last[kVectors];
#pragma GCC unroll 4
  for (size_t j = 0; j < kVectors; ++j) {
    last[j] = row_at<kForm>(from + j * kLanes * bytes_of(kForm));
  }
  from += kColumns * bytes_of(kForm);
  add_row<kRows, 0>(last, a, a_stride, sum[0]);
}

// Sums of rows, which lie one after the other, become results: one function for all that make them.
HWY_NOINLINE void store_results(const WeightOnlyTile& tile, const float* sums) {
  const Floats min = hn::Set(kFloats, tile.min), max = hn::Set(kFloats, tile.max);
  for (size_t i = 0; i < tile.rows; ++i, sums += kColumns) {
    for (size_t first = 0; first < tile.columns; first += kLanes) {
      const size_t count = tile.columns - first, at = i * tile.c_stride + first;
      Floats x = hn::LoadU(kFloats, sums + first);
      if (tile.residual != nullptr) {
        x = hn::Add(x, hn::LoadN(kFloats, tile.residual + at, count));
      }
      hn::StoreN(clamp(x, min, max), kFloats, tile.c + at, count);
    }
  }
}

template <size_t kRows, WeightForm kForm>
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
    add_block<kRows, kForm>(panel.block < left ? panel.block : left, weights, tile.a + at,
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
  float sums[kRows * kColumns];
#pragma GCC unroll 4
  for (size_t i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
    for (size_t j = 0; j < kVectors; ++j) {
      hn::StoreU(total[i][j], kFloats, sums + i * kColumns + j * kLanes);
    }
  }
  store_results(tile, sums);
}

using Multiply = void (*)(const WeightOnlyPanel&, const WeightOnlyTile&);
// [i] is for i + 1 rows.
template <WeightForm kForm>
constexpr Multiply kByRows[WeightOnlyKernels::kFewRows] = {
    multiply_rows<1, kForm>, multiply_rows<2, kForm>, multiply_rows<3, kForm>,
    multiply_rows<4, kForm>};

void multiply(const WeightOnlyPanel& panel, const WeightOnlyTile& tile) {
  const size_t index = tile.rows - 1;
  switch (panel.form) {
    case WeightForm::kBytes:
      return kByRows<WeightForm::kBytes>[index](panel, tile);
    case WeightForm::kNibbles:
      return kByRows<WeightForm::kNibbles>[index](panel, tile);
    case WeightForm::kHalves:
      return kByRows<WeightForm::kHalves>[index](panel, tile);
  }
}

constexpr WeightOnlyKernels kKernels = {.dequantize = dequantize, .multiply = multiply};

}  // namespace

// float_kernels.cpp asks for it.
const WeightOnlyKernels* weight_only_kernels_of_target() { return &kKernels; }
#endif

}  // namespace HWY_NAMESPACE
}  // namespace edgewise::xnnpack
HWY_AFTER_NAMESPACE();
