// 4-bit weights in blocks that have a scale each.
#include "backends/xnnpack/executor/row_gemm_vnni.h"

#ifdef EDGEWISE_HAS_ROW_GEMM_X86

namespace edgewise::xnnpack::vnni {
namespace {

constexpr size_t kRows = 5;  // of a tile whose sums are in registers

EDGEWISE_VNNI_INLINE __m512 scales_at(const std::byte* from) {
  const __m256i halves = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
}

template <size_t kTileRows>
struct Sums {
  __m512 of[kTileRows][kVectors];
};

// Rows' zero points, and the 128 that their numbers are stored with, times the columns' sums.
template <size_t kTileRows>
EDGEWISE_VNNI_INLINE void begin(const RowGemmTile& tile, const Part& part, Sums<kTileRows>& sums) {
  const auto* header = reinterpret_cast<const float*>(tile.panel);
  for (size_t i = 0; i < kTileRows; ++i) {
    const __m512 zero = _mm512_set1_ps(static_cast<float>(-128 - part.row[i].zero_point));
    for (size_t j = 0; j < kVectors; ++j) {
      sums.of[i][j] = _mm512_mul_ps(zero, _mm512_loadu_ps(header + j * kLanes));
    }
  }
}

template <size_t kTileRows>
EDGEWISE_VNNI_INLINE void finish(const RowGemmTile& tile, const Part& part,
                                 const Sums<kTileRows>& sums) {
  const auto* bias = reinterpret_cast<const float*>(tile.panel) + kRowGemmColumns;
  const __m512 min = _mm512_set1_ps(tile.min), max = _mm512_set1_ps(tile.max);
  const uint32_t mask = tile.columns >= kRowGemmColumns ? ~uint32_t{0} : (1u << tile.columns) - 1;
  for (size_t i = 0; i < kTileRows; ++i) {
    const __m512 scale = _mm512_set1_ps(part.row[i].scale / 16);
    for (size_t j = 0; j < kVectors; ++j) {
      __m512 x = _mm512_fmadd_ps(sums.of[i][j], scale, _mm512_loadu_ps(bias + j * kLanes));
      // The second operand where one is NaN.
      x = _mm512_max_ps(min, _mm512_min_ps(max, x));
      _mm512_mask_storeu_ps(part.c + i * tile.c_stride + j * kLanes,
                            static_cast<__mmask16>(mask >> (j * kLanes)), x);
    }
  }
}

template <size_t kTileRows>
EDGEWISE_VNNI_INLINE void add_block(const __m512i (&block)[kTileRows][kVectors],
                                    const __m512 (&scale)[kVectors], Sums<kTileRows>& sums) {
#pragma GCC unroll 8
  for (size_t i = 0; i < kTileRows; ++i) {
#pragma GCC unroll 2
    for (size_t j = 0; j < kVectors; ++j) {
      sums.of[i][j] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(block[i][j]), scale[j], sums.of[i][j]);
    }
  }
}

// Nibbles become bytes on the way, times 16.
template <size_t kTileRows, bool kIsCached>
EDGEWISE_VNNI void multiply_rows(const RowGemmTile& tile, const Part& part) {
  Sums<kTileRows> sums;
  begin(tile, part, sums);
  const std::byte* from = tile.panel + kBlocksHeader;
  const std::byte* a = part.a;
  for (size_t blocks = tile.depth / tile.block; blocks > 0; --blocks) {
    __m512i sum[kTileRows][kVectors];
    for (size_t i = 0; i < kTileRows; ++i) {
      for (size_t j = 0; j < kVectors; ++j) sum[i][j] = _mm512_setzero_si512();
    }
    for (size_t words = tile.block / kWord; words > 0; --words, a += kWord) {
      __m512i even[kVectors], odd[kVectors];
#pragma GCC unroll 2
      for (size_t j = 0; j < kVectors; ++j, from += 64) {
        prefetch<kIsCached>(from);
        unpack(_mm512_loadu_si512(from), &even[j], &odd[j]);
      }
      add_products(a, part.stride, even, sum);
      add_products(a + kStep, part.stride, odd, sum);
    }
    prefetch<kIsCached>(from);
    const __m512 scale[kVectors] = {scales_at(from), scales_at(from + 32)};
    from += kRowGemmColumns * sizeof(uint16_t);
    add_block(sum, scale, sums);
  }
  finish(tile, part, sums);
}

using Multiply = void (*)(const RowGemmTile&, const Part&);
template <bool kIsCached>
constexpr Multiply kMultiply[kRows] = {multiply_rows<1, kIsCached>, multiply_rows<2, kIsCached>,
                                       multiply_rows<3, kIsCached>, multiply_rows<4, kIsCached>,
                                       multiply_rows<5, kIsCached>};

}  // namespace

void multiply_blocks(const RowGemmTile& tile) {
  const auto& kernels = tile.is_cached ? kMultiply<true> : kMultiply<false>;
  for_each_part(tile, row_stride(tile.depth), kRows, 1,
                [&](const Part& part, size_t rows) { kernels[rows - 1](tile, part); });
}

}  // namespace edgewise::xnnpack::vnni

#endif
