// 4-bit weights in blocks that have a scale each.
#include "backends/xnnpack/executor/row_gemm_vnni.h"

#ifdef EDGEWISE_HAS_ROW_GEMM_VNNI

#include <utility>

namespace edgewise::xnnpack::vnni {
namespace {

// ---- weights
//
// A panel: of each column the sum of its weights, times 16, and the bias; then block by block the
// weights, a word of each column after the other, and the scales. Columns that there are not are
// zeros.

constexpr size_t kHeader = 2 * kRowGemmColumns * sizeof(float);  // sums, biases

size_t nibble_bytes(size_t block) { return block * kRowGemmColumns / 2; }
size_t block_bytes(size_t block) {
  return nibble_bytes(block) + kRowGemmColumns * sizeof(uint16_t);
}

// Words whose nibbles are added in bytes, two and two: 8 times 30 are still one.
constexpr size_t kAddable = 8;

}  // namespace

size_t block_panel_bytes(const GraphValue& filter) {
  const size_t block = filter.block_size;
  return kHeader + filter.shape[1] / block * block_bytes(block);
}

// Loops over columns are not unrolled: they would be 5 kB.
void pack_blocks(const GraphValue& filter, const float* bias, size_t first, std::byte* panel) {
  const size_t depth = filter.shape[1], block = filter.block_size, blocks = depth / block;
  const size_t columns = std::min(kRowGemmColumns, filter.shape[0] - first);
  const std::byte* from = filter.data.bytes.data() + first * depth / 2;
  const uint16_t* scales = filter.block_scales.data() + first * blocks;
  double sums[kRowGemmColumns] = {};
  std::byte* to = panel + kHeader;
  for (size_t i = 0; i < blocks; ++i) {
    int32_t nibbles[kRowGemmColumns] = {};
    uint32_t pairs[kRowGemmColumns] = {};
    for (size_t word = 0; word < block / kWord; ++word, from += sizeof(uint32_t)) {
      uint32_t words[kRowGemmColumns] = {};
#pragma GCC unroll 1
      for (size_t column = 0; column < columns; ++column) {
        std::memcpy(&words[column], from + column * depth / 2, sizeof(uint32_t));
      }
#pragma GCC unroll 1
      for (size_t column = 0; column < kRowGemmColumns; ++column) {
        pairs[column] += pairs_of(words[column]);
        words[column] ^= 0x88888888;  // minus 8, in two's complement
      }
      std::memcpy(to, words, sizeof(words));
      to += sizeof(words);
      if ((word + 1) % kAddable != 0 && (word + 1) * kWord != block) continue;
#pragma GCC unroll 1
      for (size_t column = 0; column < kRowGemmColumns; ++column) {
        nibbles[column] += sum_of_bytes(std::exchange(pairs[column], 0));
      }
    }
    uint16_t of_block[kRowGemmColumns] = {};
#pragma GCC unroll 1
    for (size_t column = 0; column < columns; ++column) {
      of_block[column] = scales[column * blocks + i];
      const double scale = from_bfloat16(of_block[column]);
      sums[column] += scale * (nibbles[column] - 8 * static_cast<int32_t>(block));
    }
    std::memcpy(to, of_block, sizeof(of_block));
    to += sizeof(of_block);
  }
  float header[2 * kRowGemmColumns] = {};
  for (size_t column = 0; column < columns; ++column) {
    header[column] = static_cast<float>(16 * sums[column]);
    if (bias != nullptr) header[kRowGemmColumns + column] = bias[first + column];
  }
  std::memcpy(panel, header, sizeof(header));
}

// ---- products

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
      x = _mm512_max_ps(_mm512_min_ps(x, max), min);
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
  const std::byte* from = tile.panel + kHeader;
  const uint8_t* a = part.a;
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
  for_each_part(tile, kRows, 1,
                [&](const Part& part, size_t rows) { kernels[rows - 1](tile, part); });
}

}  // namespace edgewise::xnnpack::vnni

#endif
