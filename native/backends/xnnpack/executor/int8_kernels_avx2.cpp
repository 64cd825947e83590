#include "backends/xnnpack/executor/int8_kernels.h"

#ifdef __x86_64__

#include <algorithm>

#include "backends/xnnpack/executor/row_gemm_kernels.h"
#include "core/cpu_level.h"

#define EDGEWISE_TARGETS_WITHOUT (HWY_SSE4 | HWY_AVX3)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/xnnpack/executor/int8_kernels_avx2.cpp"
#include "core/simd_foreach.h"
// Needs the target.
#include "backends/xnnpack/executor/int8_products-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace edgewise::xnnpack {
namespace HWY_NAMESPACE {
#if HWY_TARGET == HWY_AVX2
namespace {

using namespace int8_products;
constexpr hn::ScalableTag<float> kFloats;
using Words = hn::Vec<decltype(kWords)>;
using Floats = hn::Vec<decltype(kFloats)>;
static_assert(kColumns == kInt8Columns);

void sign_extend(const int8_t* from, size_t count, std::byte* bytes) {
  auto* to = reinterpret_cast<int16_t*>(bytes);
  constexpr size_t kAtOnce = 2 * kLanes;
  size_t at = 0;
  for (; at + kAtOnce <= count; at += kAtOnce) {
    hn::StoreU(hn::PromoteTo(kWords, hn::LoadU(kBytes, from + at)), kWords, to + at);
  }
  for (; at < count; ++at) to[at] = from[at];
}

// ByteProducts::kOffset.
void add_offset(const int8_t* from, size_t count, std::byte* bytes) {
  constexpr hn::ScalableTag<int8_t> kAll;
  auto* to = reinterpret_cast<int8_t*>(bytes);
  const auto sign = hn::Set(kAll, INT8_MIN);
  constexpr size_t kAtOnce = hn::MaxLanes(kAll);
  size_t at = 0;
  for (; at + kAtOnce <= count; at += kAtOnce) {
    hn::StoreU(hn::Xor(hn::LoadU(kAll, from + at), sign), kAll, to + at);
  }
  for (; at < count; ++at) to[at] = static_cast<int8_t>(from[at] ^ INT8_MIN);
}

// From sums to results.
struct Finish {
  explicit Finish(const Int8Range& range)
      : most(static_cast<float>(range.max - range.zero_point)), zero_point(range.zero_point) {}

  // Steps of 16 bits, less than the zero point. Bounded above before it becomes an integer, or what
  // is too large would become the smallest one, as what is too small may.
  HWY_INLINE Sums scaled(Sums x, Floats scale) const {
    const auto y = hn::Min(hn::Mul(hn::ConvertTo(kFloats, x), scale), hn::Set(kFloats, most));
    return Sums{_mm256_cvtps_epi32(y.raw)};
  }
  HWY_INLINE Words shifted(Words steps) const {
    return hn::SaturatedAdd(steps, hn::Set(kWords, zero_point));
  }

  const float most;
  const int16_t zero_point;
};

template <typename Products, size_t kTileRows>
void multiply_rows(const Int8Tile& tile, const Int8Range& range, size_t blocks) {
  constexpr size_t kBases = kBasesOf<kTileRows>;
  const Finish finish(range);
  const std::byte* first = tile.a;
  int8_t* c = tile.c;
  for (; blocks > 0; --blocks) {
    const std::byte* a[kBases];
    set_bases(first, tile.a_stride, a);
    first += kTileRows * tile.a_stride;
    Sums sum[kTileRows][kVectors];
#pragma GCC unroll 8
    for (size_t i = 0; i < kTileRows; ++i) {
#pragma GCC unroll 2
      for (size_t j = 0; j < kVectors; ++j) sum[i][j] = hn::LoadU(kSums, tile.bias + j * kLanes);
    }
    const int8_t* panel = tile.panel;
    for (size_t segment = tile.segments;;) {
      add_steps<Products>(tile.depth / Products::kStep, a, tile.a_stride, panel, sum);
      if (--segment == 0) break;
#pragma GCC unroll 2
      for (size_t i = 0; i < kBases; ++i) {
        a[i] += tile.segment_stride - tile.depth * sizeof(typename Products::Number);
      }
    }
#pragma GCC unroll 8
    for (size_t i = 0; i < kTileRows; ++i, c += tile.c_stride) {
      const auto scaled = [&](size_t j) HWY_ATTR {
        return finish.scaled(sum[i][j], hn::LoadU(kFloats, tile.scales + j * kLanes));
      };
      const Words steps = hn::OrderedDemote2To(kWords, scaled(0), scaled(1));
      const auto result =
          hn::Max(hn::DemoteTo(kBytes, finish.shifted(steps)), hn::Set(kBytes, range.min));
      if (tile.columns == kInt8Columns) {
        hn::StoreU(result, kBytes, c);
      } else {
        hn::StoreN(result, kBytes, c, tile.columns);
      }
    }
  }
}

template <typename Products>
constexpr Int8MultiplyRows kMultiplyRows[kRows] = {
    multiply_rows<Products, 1>, multiply_rows<Products, 2>, multiply_rows<Products, 3>,
    multiply_rows<Products, 4>, multiply_rows<Products, 5>, multiply_rows<Products, 6>};

template <typename Products>
void multiply(const Int8Tile& tile, const Int8Range& range) {
  multiply_in_blocks(kMultiplyRows<Products>, tile, range);
}

// The numbers of a channel of two pixels become neighbours, of 16 bits. In each half of a vector
// there are four channels: 0 to 3 and 8 to 11, then 4 to 7 and 12 to 15.
HWY_INLINE void interleave(Words x, Words y, int16_t* to) {
  hn::Store(hn::InterleaveLower(kWords, x, y), kWords, to);
  hn::Store(hn::InterleaveUpper(kWords, x, y), kWords, to + 2 * kLanes);
}

// 16 numbers of 32 bits, in the order of `interleave`.
template <typename D, typename T>
HWY_INLINE void load_channels(D d, const T* from, hn::Vec<D> (&to)[kVectors]) {
  const auto low = hn::LoadU(d, from), high = hn::LoadU(d, from + kLanes);
  to[0] = hn::ConcatLowerLower(d, high, low);
  to[1] = hn::ConcatUpperUpper(d, high, low);
}

constexpr size_t kTogether = WordProducts::kStep;

template <size_t kSize>
void depthwise(const Int8DepthwiseRow& row, const Int8Range& range) {
  constexpr Int8DepthwiseGroups kGroups{kSize, kTogether};
  constexpr size_t kGroup = Int8DepthwiseKernels::kGroupBytes / sizeof(int16_t);
  constexpr size_t kPixel = kGroups.of_pixel() * kGroup;
  constexpr size_t kRowGroups = kGroups.of_rows(), kAll = kGroups.all();
  constexpr size_t kResults = 2;  // at a time
  auto* const made = reinterpret_cast<int16_t*>(row.scratch);
  const size_t end = row.before + row.count;
  std::fill_n(made, row.before * kPixel, int16_t{row.zero});
  std::fill_n(made + end * kPixel, (row.pixels - end) * kPixel, int16_t{row.zero});
  int16_t* to = made + row.before * kPixel;
  for (size_t x = 0; x < row.count; ++x, to += kPixel) {
#pragma GCC unroll 2
    for (size_t i = 0; i < kRowGroups; ++i) {
      interleave(load_words(row.rows[2 * i] + x * row.steps[2 * i]),
                 load_words(row.rows[2 * i + 1] + x * row.steps[2 * i + 1]), to + i * kGroup);
    }
  }
  to = made + kRowGroups * kGroup;
  Words last = load_words(row.last);
  for (size_t x = 0; x < row.pixels; ++x, to += kPixel) {
    const Words next = load_words(row.last + (x + 1) * kInt8Columns);
    interleave(last, next, to);
    last = next;
  }
  Sums bias[kVectors];
  Floats scale[kVectors];
  load_channels(kSums, row.bias, bias);
  load_channels(kFloats, row.scales, scale);
  const Finish finish(range);
  const hn::ScalableTag<int8_t> both;
  const auto* weights = reinterpret_cast<const int16_t*>(row.weights);
  const int16_t* from = made;
  int8_t* c = row.c;
  for (size_t x = 0; x < row.results; x += kResults) {
    // Of an odd number the last one is computed twice.
    const bool is_alone = x + 1 == row.results;
    const int16_t* const pixels[kResults] = {from, is_alone ? from : from + row.stride * kPixel};
    Sums sum[kResults][kVectors] = {{bias[0], bias[1]}, {bias[0], bias[1]}};
#pragma GCC unroll 16
    for (size_t i = 0; i < kAll; ++i) {
      const bool is_last = i >= kSize * kRowGroups;
      const size_t group = is_last
                               ? (i - kSize * kRowGroups) * kTogether * kPixel + kRowGroups * kGroup
                               : i / kRowGroups * kPixel + i % kRowGroups * kGroup;
#pragma GCC unroll 2
      for (size_t j = 0; j < kVectors; ++j) {
        const Words by = hn::Load(kWords, weights + i * kGroup + j * 2 * kLanes);
#pragma GCC unroll 2
        for (size_t k = 0; k < kResults; ++k) {
          const Words numbers = hn::Load(kWords, pixels[k] + group + j * 2 * kLanes);
          sum[k][j] = hn::Add(sum[k][j], hn::WidenMulPairwiseAdd(kSums, numbers, by));
        }
      }
    }
    Words steps[kResults];
#pragma GCC unroll 2
    for (size_t k = 0; k < kResults; ++k) {
      // In the halves' order, which becomes that of channels.
      steps[k] = finish.shifted(hn::ReorderDemote2To(kWords, finish.scaled(sum[k][0], scale[0]),
                                                     finish.scaled(sum[k][1], scale[1])));
    }
    const auto results =
        hn::Max(hn::OrderedDemote2To(both, steps[0], steps[1]), hn::Set(both, range.min));
    hn::StoreU(hn::LowerHalf(results), kBytes, c);
    if (!is_alone) hn::StoreU(hn::UpperHalf(kBytes, results), kBytes, c + row.c_stride);
    from += kResults * row.stride * kPixel;
    c += kResults * row.c_stride;
  }
}

// ---- Winograd's F(2x2, 3x3)

constexpr size_t kIn = Int8WinogradKernels::kIn, kOut = Int8WinogradKernels::kOut;

HWY_INLINE void transform_input(const Words (&x)[kIn], Words (&y)[kIn]) {
  y[0] = hn::Sub(x[0], x[2]);
  y[1] = hn::Add(x[1], x[2]);
  y[2] = hn::Sub(x[2], x[1]);
  y[3] = hn::Sub(x[1], x[3]);
}

HWY_INLINE void transform_output(const Sums (&x)[kIn], Sums (&y)[kOut]) {
  y[0] = hn::Add(hn::Add(x[0], x[1]), x[2]);
  y[1] = hn::Sub(hn::Sub(x[1], x[2]), x[3]);
}

void transform_pixels(const int8_t* const* pixels, size_t channels, int16_t* to, size_t stride) {
  for (size_t at = 0; at < channels; at += 2 * kLanes) {
    Words columns[kIn][kIn];
#pragma GCC unroll 4
    for (size_t j = 0; j < kIn; ++j) {
      Words x[kIn];
#pragma GCC unroll 4
      for (size_t i = 0; i < kIn; ++i) x[i] = load_words(pixels[i * kIn + j] + at);
      transform_input(x, columns[j]);
    }
#pragma GCC unroll 4
    for (size_t i = 0; i < kIn; ++i) {
      const Words x[kIn] = {columns[0][i], columns[1][i], columns[2][i], columns[3][i]};
      Words y[kIn];
      transform_input(x, y);
#pragma GCC unroll 4
      for (size_t j = 0; j < kIn; ++j) hn::StoreU(y[j], kWords, to + at + (i * kIn + j) * stride);
    }
  }
}

template <size_t kTileRows>
void multiply_words(const Int8WinogradTile& tile, size_t first, size_t blocks) {
  // Sums that begin with one vector of zeros would be spilled.
  static const int32_t zeros[kColumns] = {};
  const int32_t* start = zeros;
  __asm__("" : "+r"(start));
  const int16_t* row = tile.a + first * tile.a_stride;
  int32_t* c = tile.c + first * tile.c_stride;
  for (; blocks > 0; --blocks, row += kTileRows * tile.a_stride) {
    const std::byte* a[kBasesOf<kTileRows>];
    const size_t stride = tile.a_stride * sizeof(int16_t);
    set_bases(reinterpret_cast<const std::byte*>(row), stride, a);
    Sums sum[kTileRows][kVectors];
#pragma GCC unroll 8
    for (size_t i = 0; i < kTileRows; ++i) {
#pragma GCC unroll 2
      for (size_t j = 0; j < kVectors; ++j) sum[i][j] = hn::LoadU(kSums, start + j * kLanes);
    }
    const int16_t* panel = tile.panel;
    add_steps<WordProducts>(tile.depth / WordProducts::kStep, a, stride, panel, sum);
#pragma GCC unroll 8
    for (size_t i = 0; i < kTileRows; ++i, c += tile.c_stride) {
#pragma GCC unroll 2
      for (size_t j = 0; j < kVectors; ++j) hn::StoreU(sum[i][j], kSums, c + j * kLanes);
    }
  }
}

void multiply_words_by_blocks(const Int8WinogradTile& tile) {
  constexpr void (*kByRows[kRows])(const Int8WinogradTile&, size_t, size_t) = {
      multiply_words<1>, multiply_words<2>, multiply_words<3>,
      multiply_words<4>, multiply_words<5>, multiply_words<6>};
  run_in_blocks(tile.rows, kRows, [&](size_t rows, size_t first, size_t blocks) {
    kByRows[rows - 1](tile, first, blocks);
  });
}

void finish_results(const int32_t* from, size_t stride, size_t channels, const int32_t* bias,
                    const float* scales, const Int8Range& range, int8_t* const* results) {
  const Finish finish(range);
  for (size_t at = 0; at < channels; at += kColumns) {
    Sums steps[kVectors][kOut][kOut];
#pragma GCC unroll 2
    for (size_t k = 0; k < kVectors; ++k) {
      const size_t first = at + k * kLanes;
      const Sums added = hn::LoadU(kSums, bias + first);
      const Floats scale = hn::LoadU(kFloats, scales + first);
      Sums columns[kIn][kOut];
#pragma GCC unroll 4
      for (size_t j = 0; j < kIn; ++j) {
        Sums x[kIn];
#pragma GCC unroll 4
        for (size_t i = 0; i < kIn; ++i) {
          x[i] = hn::LoadU(kSums, from + first + (i * kIn + j) * stride);
        }
        transform_output(x, columns[j]);
      }
#pragma GCC unroll 2
      for (size_t i = 0; i < kOut; ++i) {
        const Sums x[kIn] = {columns[0][i], columns[1][i], columns[2][i], columns[3][i]};
        transform_output(x, steps[k][i]);
#pragma GCC unroll 2
        for (size_t j = 0; j < kOut; ++j) {
          // Weights are four times what they should be.
          const Sums sum = hn::Add(hn::ShiftRight<2>(steps[k][i][j]), added);
          steps[k][i][j] = finish.scaled(sum, scale);
        }
      }
    }
#pragma GCC unroll 4
    for (size_t i = 0; i < kOut * kOut; ++i) {
      if (results[i] == nullptr) continue;
      const size_t y = i / kOut, x = i % kOut;
      const Words words =
          finish.shifted(hn::OrderedDemote2To(kWords, steps[0][y][x], steps[1][y][x]));
      const auto bytes = hn::Max(hn::DemoteTo(kBytes, words), hn::Set(kBytes, range.min));
      hn::StoreU(bytes, kBytes, results[i] + at);
    }
  }
}

constexpr Int8WinogradKernels kWinograd = {.name = "avx2",
                                           .rows = kRows,
                                           .step = WordProducts::kStep,
                                           .transform_input = transform_pixels,
                                           .multiply = multiply_words_by_blocks,
                                           .finish = finish_results};

constexpr Int8DepthwiseKernels kDepthwise = {.name = "avx2",
                                             .together = kTogether,
                                             .swaps_fours = true,
                                             .offset = 0,
                                             .run3 = depthwise<3>,
                                             .run5 = depthwise<5>};

template <typename Products>
constexpr Int8Kernels kernels(const char* name, decltype(Int8Kernels::convert) convert) {
  return {.name = name,
          .rows = kRows,
          .columns = kInt8Columns,
          .step = Products::kStep,
          .least_depth = 16,
          .least_run = 6,
          .depth_rule =
              "a depth of 16 or more; of 4 channels or less, 6 numbers in a row of the window",
          .needs_full_panels = true,
          .number_bytes = sizeof(typename Products::Number),
          .offset = Products::kOffset,
          .convert = convert,
          .multiply = multiply<Products>,
          .add = nullptr};
}
constexpr Int8Kernels kKernels = kernels<WordProducts>("avx2", sign_extend);
constexpr Int8Kernels kDotKernels = kernels<ByteProducts>("avxvnni", add_offset);

}  // namespace

const Int8Kernels* int8_kernels_of_target(bool has_dot_products) {
  return has_dot_products ? &kDotKernels : &kKernels;
}
const Int8DepthwiseKernels* int8_depthwise_kernels_of_target() { return &kDepthwise; }
const Int8WinogradKernels* int8_winograd_kernels_of_target() { return &kWinograd; }
#else
const Int8Kernels* int8_kernels_of_target(bool) { return nullptr; }
const Int8DepthwiseKernels* int8_depthwise_kernels_of_target() { return nullptr; }
const Int8WinogradKernels* int8_winograd_kernels_of_target() { return nullptr; }
#endif

}  // namespace HWY_NAMESPACE
}  // namespace edgewise::xnnpack
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace edgewise::xnnpack {
namespace {

HWY_EXPORT(int8_kernels_of_target);
HWY_EXPORT(int8_depthwise_kernels_of_target);
HWY_EXPORT(int8_winograd_kernels_of_target);

bool is_avx2() { return cpu_level().target == HWY_AVX2; }

}  // namespace

const Int8Kernels* int8_kernels() {
#ifdef EDGEWISE_HAS_ROW_GEMM_X86
  if (cpu_level().extra == CpuLevel::kVnni) return vnni::int8_kernels();
#endif
  const bool has_dot_products = cpu_level().extra == CpuLevel::kAvxVnni;
  return is_avx2() ? HWY_DYNAMIC_DISPATCH(int8_kernels_of_target)(has_dot_products) : nullptr;
}

const Int8DepthwiseKernels* int8_depthwise_kernels() {
#ifdef EDGEWISE_HAS_ROW_GEMM_X86
  if (cpu_level().extra == CpuLevel::kVnni) return vnni::int8_depthwise_kernels();
#endif
  return is_avx2() ? HWY_DYNAMIC_DISPATCH(int8_depthwise_kernels_of_target)() : nullptr;
}

const Int8WinogradKernels* int8_winograd_kernels() {
  const bool is_plain = is_avx2() && cpu_level().extra == CpuLevel::kNone;
  return is_plain ? HWY_DYNAMIC_DISPATCH(int8_winograd_kernels_of_target)() : nullptr;
}

}  // namespace edgewise::xnnpack
#endif

#endif
