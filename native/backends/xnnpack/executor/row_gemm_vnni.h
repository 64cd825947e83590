// Our own kernels for x86-64 with AVX512-VNNI: what those for weights in blocks (qb4_vnni.cpp) and
// by column (channel_vnni.cpp) share.
#pragma once

#include "backends/xnnpack/executor/row_gemm_kernels.h"

#ifdef EDGEWISE_HAS_ROW_GEMM_VNNI

#include <cstring>

#if defined(__GNUC__) && !defined(__clang__)
// Its intrinsics begin with registers that they do not set.
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>

#include "backends/xnnpack/executor/parallel.h"

// Highway has dot products of bytes from AVX3_DL on, which asks for more than the first CPUs with
// them have; so these are intrinsics.
#define EDGEWISE_VNNI __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")))
#define EDGEWISE_VNNI_INLINE EDGEWISE_VNNI inline __attribute__((always_inline))

namespace edgewise::xnnpack::vnni {

inline constexpr size_t kWord = 8;  // weights of a column that are packed together
inline constexpr size_t kLanes = 16;
inline constexpr size_t kVectors = kRowGemmColumns / kLanes;
inline constexpr size_t kStep = 4;      // products that one instruction adds
inline constexpr size_t kAhead = 4096;  // bytes from what is read to what is prefetched

// ---- rows
//
// Each row's parameters; then, row by row, q + 128 in the order in which products read it; and room
// for a row more, of anything, where their number is odd.

inline constexpr size_t kCacheLine = 64;

inline size_t parameters_bytes(size_t rows) {
  return divide_up(rows * sizeof(QuantizedRow), kCacheLine) * kCacheLine;
}

// An odd number of cache lines: rows of a tile would lie in few sets of the cache else.
inline size_t row_stride(size_t depth) { return (divide_up(depth, kCacheLine) | 1) * kCacheLine; }

// Some rows of a tile.
struct Part {
  const uint8_t* a = nullptr;
  size_t stride = 0;
  const QuantizedRow* row = nullptr;
  float* c = nullptr;
};

// run(part, rows) for parts of nearly equal size, of `most` rows at most; all but the last have a
// multiple of `step` rows.
template <typename Run>
void for_each_part(const RowGemmTile& tile, size_t most, size_t step, Run run) {
  const auto* row = reinterpret_cast<const QuantizedRow*>(tile.a);
  const auto* a = reinterpret_cast<const uint8_t*>(tile.a + parameters_bytes(tile.rows));
  const size_t parts = divide_up(tile.rows, most), stride = row_stride(tile.depth);
  const size_t steps = divide_up(tile.rows, step);
  for (size_t i = 0; i < parts; ++i) {
    const size_t first = step * part_start(steps, parts, i);
    const size_t end = std::min(step * part_start(steps, parts, i + 1), tile.rows);
    const Part part = {.a = a + first * stride,
                       .stride = stride,
                       .row = row + first,
                       .c = tile.c + first * tile.c_stride};
    run(part, end - first);
  }
}

EDGEWISE_VNNI_INLINE __m512i four_at(const uint8_t* a) {
  int32_t four;
  std::memcpy(&four, a, sizeof(four));
  return _mm512_set1_epi32(four);
}

template <size_t kTileRows, size_t kWidth>
EDGEWISE_VNNI_INLINE void add_products(const uint8_t* a, size_t stride, const __m512i (&w)[kWidth],
                                       __m512i (&sum)[kTileRows][kWidth]) {
#pragma GCC unroll 16
  for (size_t i = 0; i < kTileRows; ++i) {
    const __m512i x = four_at(a + i * stride);
#pragma GCC unroll 2
    for (size_t j = 0; j < kWidth; ++j) {
      // In assembly: or GCC copies each sum from register to register, twice.
      __asm__("vpdpbusd %2, %1, %0" : "+v"(sum[i][j]) : "v"(x), "v"(w[j]));
    }
  }
}

// 16 nibbles of a byte each, times 16: of `even` and `odd` indices.
EDGEWISE_VNNI_INLINE void unpack(__m512i both, __m512i* even, __m512i* odd) {
  const __m512i high = _mm512_set1_epi8(static_cast<char>(0xf0));
  *odd = _mm512_and_si512(both, high);
  *even = _mm512_and_si512(_mm512_slli_epi16(both, 4), high);
}

template <bool kIsCached>
EDGEWISE_VNNI_INLINE void prefetch(const std::byte* from) {
  _mm_prefetch(from + kAhead, kIsCached ? _MM_HINT_T0 : _MM_HINT_NTA);
}

// ---- weights

// Of a word of nibbles.
inline uint32_t pairs_of(uint32_t word) { return (word & 0x0f0f0f0f) + (word >> 4 & 0x0f0f0f0f); }

inline int32_t sum_of_bytes(uint32_t word) {
  word = (word & 0x00ff00ff) + (word >> 8 & 0x00ff00ff);
  return static_cast<int32_t>((word & 0xffff) + (word >> 16));
}

// See RowGemmKernels.
size_t block_panel_bytes(const GraphValue& filter);
void pack_blocks(const GraphValue& filter, const float* bias, size_t first, std::byte* panel);
void multiply_blocks(const RowGemmTile& tile);

size_t channel_panel_bytes(const GraphValue& filter);
void pack_channels(const GraphValue& filter, const float* bias, size_t first, std::byte* panel);
void multiply_channels(const RowGemmTile& tile);

}  // namespace edgewise::xnnpack::vnni

#endif
