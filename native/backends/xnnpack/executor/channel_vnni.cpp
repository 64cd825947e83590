// Weights of 4 or 8 bits with a scale for each column. Sums are integers to the end.
#include "backends/xnnpack/executor/row_gemm_vnni.h"

#ifdef EDGEWISE_HAS_ROW_GEMM_X86

namespace edgewise::xnnpack::vnni {
namespace {

constexpr size_t kRows = 12;  // of a tile whose sums are in registers

struct Sums {
  alignas(64) int32_t of[kRows][kRowGemmColumns];
};

// Of the first kWidth vectors of columns. Nibbles become bytes on the way, times 16.
template <size_t kBits, size_t kTileRows, size_t kWidth, bool kIsCached>
EDGEWISE_VNNI void multiply_rows(const Part& part, const std::byte* from, size_t words,
                                 Sums* sums) {
  // Few rows have sums for even and odd indices: one waits for the other's last else.
  constexpr size_t kChains = kTileRows <= 2 ? 2 : 1;
  __m512i sum[kChains][kTileRows][kWidth];
  for (auto& chain : sum) {
    for (auto& row : chain) {
      for (__m512i& vector : row) vector = _mm512_setzero_si512();
    }
  }
  const std::byte* a = part.a;
  do {
    __m512i even[kWidth], odd[kWidth];
#pragma GCC unroll 2
    for (size_t j = 0; j < kWidth; ++j) {
      prefetch<kIsCached>(from + j * 64);
      even[j] = _mm512_loadu_si512(from + j * 64);
      if constexpr (kBits == 4) {
        unpack(even[j], &even[j], &odd[j]);
      } else {
        prefetch<kIsCached>(from + kWordOfBytes + j * 64);
        odd[j] = _mm512_loadu_si512(from + kWordOfBytes + j * 64);
      }
    }
    add_products(a, part.stride, even, sum[0]);
    add_products(a + kStep, part.stride, odd, sum[kChains - 1]);
    from += kBits / 4 * kWordOfBytes;
    a += kWord;
  } while (--words > 0);
#pragma GCC unroll 16
  for (size_t i = 0; i < kTileRows; ++i) {
#pragma GCC unroll 2
    for (size_t j = 0; j < kWidth; ++j) {
      __m512i all = sum[0][i][j];
      if constexpr (kChains == 2) all = _mm512_add_epi32(all, sum[1][i][j]);
      _mm512_store_si512(&sums->of[i][j * kLanes], all);
    }
  }
}

// Rows' zero points, and the 128 that their numbers are stored with, times the columns' sums;
// scales, biases and bounds.
template <size_t kBits>
EDGEWISE_VNNI void finish(const RowGemmTile& tile, const Part& part, size_t rows,
                          const Sums& sums) {
  const auto* header = reinterpret_cast<const float*>(tile.panel);
  const __m512 min = _mm512_set1_ps(tile.min), max = _mm512_set1_ps(tile.max);
  const uint32_t mask = tile.columns >= kRowGemmColumns ? ~uint32_t{0} : (1u << tile.columns) - 1;
#pragma GCC unroll 1
  for (size_t j = 0; j < tile.columns; j += kLanes) {
    const __m512i weights = _mm512_loadu_si512(header + j);
    const __m512 scale = _mm512_loadu_ps(header + kRowGemmColumns + j);
    const __m512 bias = _mm512_loadu_ps(header + 2 * kRowGemmColumns + j);
#pragma GCC unroll 1
    for (size_t i = 0; i < rows; ++i) {
      const __m512i zero = _mm512_set1_epi32(-128 - part.row[i].zero_point);
      __m512i sum = _mm512_load_si512(&sums.of[i][j]);
      if constexpr (kBits == 4) sum = _mm512_srai_epi32(sum, 4);
      sum = _mm512_add_epi32(sum, _mm512_mullo_epi32(zero, weights));
      __m512 x = _mm512_mul_ps(_mm512_cvtepi32_ps(sum), _mm512_set1_ps(part.row[i].scale));
      x = _mm512_fmadd_ps(x, scale, bias);
      // The second operand where one is NaN.
      x = _mm512_max_ps(min, _mm512_min_ps(max, x));
      _mm512_mask_storeu_ps(part.c + i * tile.c_stride + j, static_cast<__mmask16>(mask >> j), x);
    }
  }
}

using Multiply = void (*)(const Part&, const std::byte* from, size_t words, Sums* sums);

// Of 1, 2, 4, 6 ... rows.
template <size_t kBits, size_t kWidth>
constexpr Multiply kKernels[] = {
    multiply_rows<kBits, 1, kWidth, true>,  multiply_rows<kBits, 2, kWidth, true>,
    multiply_rows<kBits, 4, kWidth, true>,  multiply_rows<kBits, 6, kWidth, true>,
    multiply_rows<kBits, 8, kWidth, true>,  multiply_rows<kBits, 10, kWidth, true>,
    multiply_rows<kBits, 12, kWidth, true>,
};

template <size_t kBits>
Multiply kernel_of(const RowGemmTile& tile, size_t rows) {
  if (tile.columns <= kLanes) return kKernels<kBits, 1>[rows / 2];
  // Of several rows the second part reads what the first one has read.
  if (tile.rows == 1 && !tile.is_cached) return multiply_rows<kBits, 1, 2, false>;
  return kKernels<kBits, 2>[rows / 2];
}

template <size_t kBits>
void multiply_bits(const RowGemmTile& tile) {
  for_each_part(tile, row_stride(tile.depth), kRows, 2, [&](const Part& part, size_t rows) {
    Sums sums;
    // An odd row's neighbour is computed for nothing.
    const size_t computed = rows == 1 ? 1 : divide_up(rows, 2) * 2;
    kernel_of<kBits>(tile, computed)(part, tile.panel + kChannelsHeader,
                                     divide_up(tile.depth, kWord), &sums);
    finish<kBits>(tile, part, rows, sums);
  });
}

}  // namespace

void multiply_channels(const RowGemmTile& tile) {
  (bits_of(tile.weights) == 4 ? multiply_bits<4> : multiply_bits<8>)(tile);
}

}  // namespace edgewise::xnnpack::vnni

#endif
