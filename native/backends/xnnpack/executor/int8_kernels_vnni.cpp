#include "backends/xnnpack/executor/int8_kernels.h"
#include "backends/xnnpack/executor/row_gemm_vnni.h"

#ifdef EDGEWISE_HAS_ROW_GEMM_X86

#include <algorithm>
#include <cstring>

namespace edgewise::xnnpack::vnni {
namespace {

// With two panels 24 sums, and what is multiplied, 27 of 32 registers; 14 loads are for 24
// products.
constexpr size_t kRows = 12;
constexpr size_t kRowsOfBase = 4;
// `convert` adds it: one factor of vpdpbusd has no sign.
constexpr size_t kOffset = 128;
constexpr char kSign = static_cast<char>(0x80);
// Bytes from what of a panel is multiplied to what is fetched into the first cache; the panels that
// come next are fetched into the second one.
constexpr size_t kNear = 2048;
constexpr size_t kFinished = 4;  // vectors of sums that become one of bytes

EDGEWISE_VNNI void add_offset(const int8_t* from, size_t count, std::byte* to) {
  const __m512i sign = _mm512_set1_epi8(kSign);
  for (; count >= sizeof(__m512i); count -= sizeof(__m512i)) {
    _mm512_storeu_si512(to, _mm512_xor_si512(_mm512_loadu_si512(from), sign));
    from += sizeof(__m512i);
    to += sizeof(__m512i);
  }
  const __mmask64 rest = (__mmask64{1} << count) - 1;
  const __m512i last = _mm512_xor_si512(_mm512_maskz_loadu_epi8(rest, from), sign);
  _mm512_mask_storeu_epi8(to, rest, last);
}

// Vectors of 32 bits become one of bytes: 16 of each, one after the other. Steps of a result are
// less its zero point.
struct Narrow {
  EDGEWISE_VNNI explicit Narrow(const Int8Range& range)
      : zero_point(_mm512_set1_epi16(range.zero_point)),
        min(_mm512_set1_epi8(range.min)),
        order(_mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15)) {}

  EDGEWISE_VNNI_INLINE __m512i shifted(__m512i low, __m512i high) const {
    return _mm512_adds_epi16(_mm512_packs_epi32(low, high), zero_point);
  }
  EDGEWISE_VNNI_INLINE __m512i operator()(const __m512i (&steps)[kFinished]) const {
    // Packed lane by lane: four bytes of each in a lane.
    const __m512i bytes =
        _mm512_packs_epi16(shifted(steps[0], steps[1]), shifted(steps[2], steps[3]));
    return _mm512_permutexvar_epi32(order, _mm512_max_epi8(bytes, min));
  }

  const __m512i zero_point, min, order;
};

// From sums to results.
struct Finish {
  EDGEWISE_VNNI explicit Finish(const Int8Range& range)
      : narrow(range), most(_mm512_set1_ps(static_cast<float>(range.max - range.zero_point))) {}

  // Bounded above before it becomes an integer, or what is too large would become the smallest
  // one, as what is too small may.
  EDGEWISE_VNNI_INLINE __m512i scaled(__m512i sum, __m512 scale) const {
    const __m512 x = _mm512_mul_ps(_mm512_cvtepi32_ps(sum), scale);
    return _mm512_cvtps_epi32(_mm512_min_ps(x, most));
  }
  EDGEWISE_VNNI_INLINE __m512i operator()(const __m512i (&sums)[kFinished],
                                          const __m512 (&scales)[kFinished]) const {
    __m512i x[kFinished];
#pragma GCC unroll 4
    for (size_t i = 0; i < kFinished; ++i) x[i] = scaled(sums[i], scales[i]);
    return narrow(x);
  }

  const Narrow narrow;
  const __m512 most;
};

// Part `index` of `results`: a row's, of kWidth panels. CPUs take long for stores with a mask.
template <size_t kWidth>
EDGEWISE_VNNI_INLINE void store_row(__m512i results, size_t index, size_t columns, int8_t* c) {
  const auto mask = static_cast<__mmask32>((uint64_t{1} << columns) - 1);
  if constexpr (kWidth == 1) {
    const __m128i parts[] = {_mm512_castsi512_si128(results), _mm512_extracti32x4_epi32(results, 1),
                             _mm512_extracti32x4_epi32(results, 2),
                             _mm512_extracti32x4_epi32(results, 3)};
    if (columns == kInt8Columns) {
      _mm_storeu_si128(reinterpret_cast<__m128i*>(c), parts[index]);
    } else {
      _mm_mask_storeu_epi8(c, static_cast<__mmask16>(mask), parts[index]);
    }
  } else {
    const __m256i parts[] = {_mm512_castsi512_si256(results),
                             _mm512_extracti64x4_epi64(results, 1)};
    if (columns == 2 * kInt8Columns) {
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(c), parts[index]);
    } else {
      _mm256_mask_storeu_epi8(c, mask, parts[index]);
    }
  }
}

// kWidth: panels.
template <size_t kTileRows, size_t kWidth>
EDGEWISE_VNNI void multiply_rows(const Int8Tile& tile, const Int8Range& range, size_t blocks) {
  constexpr size_t kBases = (kTileRows + kRowsOfBase - 1) / kRowsOfBase;
  constexpr size_t kTogether = kFinished / kWidth;  // rows
  const Finish finish(range);
  __m512 scales[kFinished];
#pragma GCC unroll 4
  for (size_t i = 0; i < kFinished; ++i) {
    scales[i] = _mm512_loadu_ps(tile.scales + i % kWidth * kLanes);
  }
  const std::byte* first = tile.a;
  int8_t* c = tile.c;
  for (; blocks > 0; --blocks) {
    // From one pointer, compilers keep a distance for each row and spill them.
    const std::byte* a[kBases];
#pragma GCC unroll 4
    for (size_t i = 0; i < kBases; ++i) {
      a[i] = first + i * kRowsOfBase * tile.a_stride;
      __asm__("" : "+r"(a[i]));
    }
    first += kTileRows * tile.a_stride;
    __m512i sum[kTileRows][kWidth];
#pragma GCC unroll 16
    for (size_t i = 0; i < kTileRows; ++i) {
#pragma GCC unroll 2
      for (size_t j = 0; j < kWidth; ++j) {
        sum[i][j] = _mm512_loadu_si512(tile.bias + j * kLanes);
      }
    }
    const int8_t* panel = tile.panel;
    for (size_t segment = tile.segments;;) {
      for (size_t steps = tile.depth / kStep; steps > 0; --steps) {
        __m512i w[kWidth];
#pragma GCC unroll 2
        for (size_t j = 0; j < kWidth; ++j) {
          w[j] = _mm512_loadu_si512(panel + j * tile.panel_stride);
          _mm_prefetch(panel + j * tile.panel_stride + kNear, _MM_HINT_T0);
          _mm_prefetch(panel + (j + kWidth) * tile.panel_stride, _MM_HINT_T1);
        }
        panel += sizeof(__m512i);
#pragma GCC unroll 16
        for (size_t i = 0; i < kTileRows; ++i) {
          const __m512i x = four_at(a[i / kRowsOfBase] + i % kRowsOfBase * tile.a_stride);
#pragma GCC unroll 2
          for (size_t j = 0; j < kWidth; ++j) add_dots(sum[i][j], x, w[j]);
        }
#pragma GCC unroll 4
        for (size_t i = 0; i < kBases; ++i) a[i] += kStep;
      }
      if (--segment == 0) break;
#pragma GCC unroll 4
      for (size_t i = 0; i < kBases; ++i) a[i] += tile.segment_stride - tile.depth;
    }
#pragma GCC unroll 16
    for (size_t row = 0; row < kTileRows; row += kTogether) {
      __m512i sums[kFinished];
#pragma GCC unroll 4
      for (size_t i = 0; i < kFinished; ++i) {
        // Beyond the last row: that one again.
        sums[i] = sum[std::min(row + i / kWidth, kTileRows - 1)][i % kWidth];
      }
      const __m512i results = finish(sums, scales);
#pragma GCC unroll 4
      for (size_t i = 0; i < kTogether; ++i) {
        if (row + i == kTileRows) break;
        store_row<kWidth>(results, i, tile.columns, c);
        c += tile.c_stride;
      }
    }
  }
}

template <size_t kWidth>
constexpr Int8MultiplyRows kMultiplyRows[kRows] = {
    multiply_rows<1, kWidth>,  multiply_rows<2, kWidth>,  multiply_rows<3, kWidth>,
    multiply_rows<4, kWidth>,  multiply_rows<5, kWidth>,  multiply_rows<6, kWidth>,
    multiply_rows<7, kWidth>,  multiply_rows<8, kWidth>,  multiply_rows<9, kWidth>,
    multiply_rows<10, kWidth>, multiply_rows<11, kWidth>, multiply_rows<12, kWidth>};

void multiply(const Int8Tile& tile, const Int8Range& range) {
  const bool is_one = tile.columns <= kInt8Columns;
  multiply_in_blocks(is_one ? kMultiplyRows<1> : kMultiplyRows<2>, tile, range);
}

EDGEWISE_VNNI void add(const int8_t* a, const int8_t* b, size_t count, const Int8Sum& sum,
                       int8_t* c) {
  const Narrow narrow(sum.range);
  const __m512i max = _mm512_set1_epi8(sum.range.max), bias = _mm512_set1_epi32(sum.bias);
  const __m512i by_a = _mm512_set1_epi32(sum.a_multiplier);
  const __m512i by_b = _mm512_set1_epi32(sum.b_multiplier);
  const auto shift = static_cast<unsigned>(sum.shift);
  // `mask`: of 16 bytes, those that there are.
  const auto steps_of = [&](const int8_t* x, const int8_t* y, __mmask16 mask) EDGEWISE_VNNI {
    const __m512i left = _mm512_cvtepi8_epi32(_mm_maskz_loadu_epi8(mask, x));
    const __m512i right = _mm512_cvtepi8_epi32(_mm_maskz_loadu_epi8(mask, y));
    const __m512i products =
        _mm512_add_epi32(_mm512_mullo_epi32(left, by_a), _mm512_mullo_epi32(right, by_b));
    return _mm512_srai_epi32(_mm512_add_epi32(products, bias), shift);
  };
  while (count > 0) {
    const size_t now = std::min(count, kFinished * kLanes);
    const __mmask64 mask = ~__mmask64{0} >> (kFinished * kLanes - now);
    __m512i steps[kFinished];
#pragma GCC unroll 4
    for (size_t i = 0; i < kFinished; ++i) {
      steps[i] =
          steps_of(a + i * kLanes, b + i * kLanes, static_cast<__mmask16>(mask >> i * kLanes));
    }
    const __m512i results = _mm512_min_epi8(narrow(steps), max);
    if (now == kFinished * kLanes) {
      _mm512_storeu_si512(c, results);
    } else {
      _mm512_mask_storeu_epi8(c, mask, results);
    }
    a += now;
    b += now;
    c += now;
    count -= now;
  }
}

// The numbers of a channel of up to four rows become neighbours, with kOffset.
EDGEWISE_VNNI_INLINE void interleave(const int8_t* const* rows, size_t count, std::byte* to) {
  // Byte i of a word: that of the word's channel.
  const __m512i channels =
      _mm512_set_epi32(0x0f0f0f0f, 0x0e0e0e0e, 0x0d0d0d0d, 0x0c0c0c0c, 0x0b0b0b0b, 0x0a0a0a0a,
                       0x09090909, 0x08080808, 0x07070707, 0x06060606, 0x05050505, 0x04040404,
                       0x03030303, 0x02020202, 0x01010101, 0);
  __m512i x = _mm512_set1_epi8(kSign);
#pragma GCC unroll 4
  for (size_t i = 0; i < count; ++i) {
    const __m128i row = _mm_loadu_si128(reinterpret_cast<const __m128i*>(rows[i]));
    const __m512i bytes =
        _mm512_maskz_shuffle_epi8(0x1111111111111111u << i, _mm512_broadcast_i32x4(row), channels);
    x = _mm512_xor_si512(x, bytes);
  }
  _mm512_storeu_si512(to, x);
}

template <size_t kSize>
EDGEWISE_VNNI void depthwise(const Int8DepthwiseRow& row, const Int8Range& range) {
  constexpr Int8DepthwiseGroups kGroups{kSize, kStep};
  constexpr size_t kGroup = Int8DepthwiseKernels::kGroupBytes;
  constexpr size_t kPixel = kGroups.of_pixel() * kGroup;
  constexpr size_t kAll = kGroups.all();
  constexpr size_t kOfRows = std::min(kSize, kStep);
  static_assert(kGroups.of_rows() == 1);
  const size_t end = row.before + row.count;
  const int zero = static_cast<uint8_t>(row.zero) ^ 0x80;
  std::memset(row.scratch, zero, row.before * kPixel);
  std::memset(row.scratch + end * kPixel, zero, (row.pixels - end) * kPixel);
  std::byte* to = row.scratch + row.before * kPixel;
  const int8_t* rows[kOfRows];
  for (size_t i = 0; i < kOfRows; ++i) rows[i] = row.rows[i];
  for (size_t x = 0; x < row.count; ++x, to += kPixel) {
    interleave(rows, kOfRows, to);
#pragma GCC unroll 4
    for (size_t i = 0; i < kOfRows; ++i) rows[i] += row.steps[i];
  }
  if constexpr (kGroups.has_last_row()) {
    to = row.scratch + kGroup;
    for (size_t x = 0; x < row.pixels; ++x, to += kPixel) {
      const int8_t* from = row.last + x * kInt8Columns;
      const int8_t* pixels[] = {from, from + kInt8Columns, from + 2 * kInt8Columns,
                                from + 3 * kInt8Columns};
      interleave(pixels, kStep, to);
    }
  }
  __m512i weights[kAll];
#pragma GCC unroll 8
  for (size_t i = 0; i < kAll; ++i) weights[i] = _mm512_loadu_si512(row.weights + i * kGroup);
  const __m512i bias = _mm512_loadu_si512(row.bias);
  const __m512 scale = _mm512_loadu_ps(row.scales);
  const __m512 scales[kFinished] = {scale, scale, scale, scale};
  const Finish finish(range);
  const size_t stride = row.stride * kPixel;
  const std::byte* from = row.scratch;
  int8_t* c = row.c;
  for (size_t left = row.results; left > 0;) {
    const size_t count = std::min(left, kFinished);
    __m512i sums[kFinished];
#pragma GCC unroll 4
    for (size_t k = 0; k < kFinished; ++k) {
      // Beyond the last result: that one again.
      const std::byte* pixel = from + std::min(k, count - 1) * stride;
      __m512i sum = bias;
#pragma GCC unroll 8
      for (size_t i = 0; i < kAll; ++i) {
        const size_t group = i < kSize ? i * kPixel : (i - kSize) * kStep * kPixel + kGroup;
        add_dots(sum, _mm512_loadu_si512(pixel + group), weights[i]);
      }
      sums[k] = sum;
    }
    const __m512i results = finish(sums, scales);
#pragma GCC unroll 4
    for (size_t k = 0; k < kFinished; ++k) {
      if (k < count) store_row<1>(results, k, kInt8Columns, c + k * row.c_stride);
    }
    left -= count;
    from += kFinished * stride;
    c += kFinished * row.c_stride;
  }
}

constexpr Int8DepthwiseKernels kDepthwise = {.name = "avx512vnni",
                                             .together = kStep,
                                             .swaps_fours = false,
                                             .offset = kOffset,
                                             .run3 = depthwise<3>,
                                             .run5 = depthwise<5>};

constexpr Int8Kernels kKernels = {
    .name = "avx512vnni",
    .rows = kRows,
    .columns = 2 * kInt8Columns,
    .step = kStep,
    .least_depth = 16,
    .least_run = 6,
    .depth_rule = "a depth of 16 or more; of 4 channels or less, 6 numbers in a row of the window",
    .needs_full_panels = false,
    .number_bytes = 1,
    .offset = kOffset,
    .convert = add_offset,
    .multiply = multiply,
    .add = add};

}  // namespace

const Int8Kernels* int8_kernels() { return &kKernels; }
const Int8DepthwiseKernels* int8_depthwise_kernels() { return &kDepthwise; }

}  // namespace edgewise::xnnpack::vnni

#endif
