// Our own kernels for x86-64 with AVX512-VNNI: what those for weights in blocks (qb4_vnni.cpp) and
// by column (channel_vnni.cpp) share.
#pragma once

#include "backends/xnnpack/executor/row_gemm_panels.h"

#ifdef EDGEWISE_HAS_ROW_GEMM_X86

#include <cstring>

#if defined(__GNUC__) && !defined(__clang__)
// Its intrinsics begin with registers that they do not set.
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>

// Highway has dot products of bytes from AVX3_DL on, which asks for more than the first CPUs with
// them have; so these are intrinsics.
#define EDGEWISE_VNNI __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")))
#define EDGEWISE_VNNI_INLINE EDGEWISE_VNNI inline __attribute__((always_inline))

namespace edgewise::xnnpack::vnni {

inline constexpr size_t kLanes = 16;
inline constexpr size_t kVectors = kRowGemmColumns / kLanes;
inline constexpr size_t kStep = 4;      // products that one instruction adds
inline constexpr size_t kAhead = 4096;  // bytes from what is read to what is prefetched

// A row is its numbers q + 128 in the order in which products read them. Behind the last one there
// is room for a row more, of anything, where their number is odd.

EDGEWISE_VNNI_INLINE __m512i four_at(const std::byte* a) {
  int32_t four;
  std::memcpy(&four, a, sizeof(four));
  return _mm512_set1_epi32(four);
}

// Adds dot products of four bytes each, those of `x` without sign. In assembly: or GCC copies each
// sum from register to register, twice.
EDGEWISE_VNNI_INLINE void add_dots(__m512i& sum, __m512i x, __m512i w) {
  __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(x), "v"(w));
}

template <size_t kTileRows, size_t kWidth>
EDGEWISE_VNNI_INLINE void add_products(const std::byte* a, size_t stride,
                                       const __m512i (&w)[kWidth],
                                       __m512i (&sum)[kTileRows][kWidth]) {
#pragma GCC unroll 16
  for (size_t i = 0; i < kTileRows; ++i) {
    const __m512i x = four_at(a + i * stride);
#pragma GCC unroll 2
    for (size_t j = 0; j < kWidth; ++j) add_dots(sum[i][j], x, w[j]);
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

// Of panels of qbint4, and of qcint4 and qcint8.
void multiply_blocks(const RowGemmTile& tile);
void multiply_channels(const RowGemmTile& tile);

}  // namespace edgewise::xnnpack::vnni

#endif
