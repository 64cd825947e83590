// Our own kernels, on x86-64 with AVX512-VNNI.
#include "backends/xnnpack/executor/qb4_kernels.h"

#ifdef EDGEWISE_HAS_QB4_VNNI

#include <cstring>
#include <utility>

#if defined(__GNUC__) && !defined(__clang__)
// Its intrinsics begin with registers that they do not set.
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>

#include "backends/xnnpack/executor/parallel.h"
#include "core/cpu_level.h"

namespace edgewise::xnnpack {
namespace {

// ---- weights
//
// A panel: of each column the sum of its weights, times 16, and the bias; then block by block the
// weights, a word of each column after the other, and the scales. Columns that there are not are
// zeros.

constexpr size_t kWord = 8;  // weights of a column that a word of 32 bits holds
constexpr size_t kHeader = 2 * kQb4Columns * sizeof(float);  // sums, biases

size_t nibble_bytes(size_t block) { return block * kQb4Columns / 2; }
size_t block_bytes(size_t block) { return nibble_bytes(block) + kQb4Columns * sizeof(uint16_t); }

// Words whose nibbles are added in bytes, two and two: 8 times 30 are still one.
constexpr size_t kAddable = 8;

uint32_t pairs_of(uint32_t word) { return (word & 0x0f0f0f0f) + (word >> 4 & 0x0f0f0f0f); }

int32_t sum_of_bytes(uint32_t word) {
  word = (word & 0x00ff00ff) + (word >> 8 & 0x00ff00ff);
  return static_cast<int32_t>((word & 0xffff) + (word >> 16));
}

size_t panel_bytes(size_t depth, size_t block) {
  return kHeader + depth / block * block_bytes(block);
}

// Loops over columns are not unrolled: they would be 5 kB.
void pack(const GraphValue& filter, const float* bias, size_t first, std::byte* panel) {
  const size_t depth = filter.shape[1], block = filter.block_size, blocks = depth / block;
  const size_t columns = std::min(kQb4Columns, filter.shape[0] - first);
  const std::byte* from = filter.data.bytes.data() + first * depth / 2;
  const uint16_t* scales = filter.block_scales.data() + first * blocks;
  double sums[kQb4Columns] = {};
  std::byte* to = panel + kHeader;
  for (size_t i = 0; i < blocks; ++i) {
    int32_t nibbles[kQb4Columns] = {};
    uint32_t pairs[kQb4Columns] = {};
    for (size_t word = 0; word < block / kWord; ++word, from += sizeof(uint32_t)) {
      uint32_t words[kQb4Columns] = {};
#pragma GCC unroll 1
      for (size_t column = 0; column < columns; ++column) {
        std::memcpy(&words[column], from + column * depth / 2, sizeof(uint32_t));
      }
#pragma GCC unroll 1
      for (size_t column = 0; column < kQb4Columns; ++column) {
        pairs[column] += pairs_of(words[column]);
        words[column] ^= 0x88888888;  // minus 8, in two's complement
      }
      std::memcpy(to, words, sizeof(words));
      to += sizeof(words);
      if ((word + 1) % kAddable != 0 && (word + 1) * kWord != block) continue;
#pragma GCC unroll 1
      for (size_t column = 0; column < kQb4Columns; ++column) {
        nibbles[column] += sum_of_bytes(std::exchange(pairs[column], 0));
      }
    }
    uint16_t of_block[kQb4Columns] = {};
#pragma GCC unroll 1
    for (size_t column = 0; column < columns; ++column) {
      of_block[column] = scales[column * blocks + i];
      const double scale = from_bfloat16(of_block[column]);
      sums[column] += scale * (nibbles[column] - 8 * static_cast<int32_t>(block));
    }
    std::memcpy(to, of_block, sizeof(of_block));
    to += sizeof(of_block);
  }
  float header[2 * kQb4Columns] = {};
  for (size_t column = 0; column < columns; ++column) {
    header[column] = static_cast<float>(16 * sums[column]);
    if (bias != nullptr) header[kQb4Columns + column] = bias[first + column];
  }
  std::memcpy(panel, header, sizeof(header));
}

// Highway has dot products of bytes from AVX3_DL on, which asks for more than the first CPUs with
// them have; so these are intrinsics.
#define EDGEWISE_VNNI __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")))
#define EDGEWISE_VNNI_INLINE EDGEWISE_VNNI inline __attribute__((always_inline))

constexpr size_t kLanes = 16;
constexpr size_t kVectors = kQb4Columns / kLanes;
constexpr size_t kStep = 4;      // products that one instruction adds
constexpr size_t kRows = 5;      // of a tile whose sums are in registers
constexpr size_t kAhead = 4096;  // bytes from what is read to what is prefetched

// ---- rows

// Each row's parameters; then, row by row, q + 128 in the order in which `multiply` reads it.
constexpr size_t kAlignment = 64;

size_t parameters_bytes(size_t rows) {
  return divide_up(rows * sizeof(Qb4Row), kAlignment) * kAlignment;
}

size_t rows_bytes(size_t rows, size_t depth) { return parameters_bytes(rows) + rows * depth; }

EDGEWISE_VNNI void quantize_row(const float* from, size_t count, uint8_t* to, Qb4Row* row) {
  const auto mask_of = [count](size_t at) EDGEWISE_VNNI {
    return static_cast<__mmask16>(count - at >= kLanes ? 0xffff : 0xff);
  };
  __m512 min = _mm512_setzero_ps(), max = min;
  for (size_t at = 0; at < count; at += kLanes) {
    const __m512 x = _mm512_maskz_loadu_ps(mask_of(at), from + at);
    min = _mm512_min_ps(x, min);
    max = _mm512_max_ps(x, max);
  }
  *row = qb4_row(_mm512_reduce_min_ps(min), _mm512_reduce_max_ps(max));
  const __m512 factor = _mm512_set1_ps(1 / row->scale), most = _mm512_set1_ps(INT16_MAX);
  const __m512i zero = _mm512_set1_epi32(row->zero_point + 128);
  // Of eight numbers those with even indices first: low nibbles are multiplied with them.
  const __m128i order = _mm_setr_epi8(0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15);
  for (size_t at = 0; at < count; at += kLanes) {
    const __mmask16 mask = mask_of(at);
    const __m512 x = _mm512_mul_ps(_mm512_maskz_loadu_ps(mask, from + at), factor);
    const __m512i q = _mm512_add_epi32(_mm512_cvtps_epi32(_mm512_min_ps(x, most)), zero);
    const __m128i bytes = _mm512_cvtusepi32_epi8(_mm512_max_epi32(q, _mm512_setzero_si512()));
    _mm_mask_storeu_epi8(to + at, mask, _mm_shuffle_epi8(bytes, order));
  }
}

void quantize(const float* x, size_t rows, size_t depth, size_t row, std::byte* to) {
  quantize_row(x, depth, reinterpret_cast<uint8_t*>(to + parameters_bytes(rows)) + row * depth,
               reinterpret_cast<Qb4Row*>(to) + row);
}

// ---- products

// Some rows of a tile.
struct Part {
  const uint8_t* a = nullptr;
  const Qb4Row* row = nullptr;
  float* c = nullptr;
};

EDGEWISE_VNNI_INLINE __m512 scales_at(const std::byte* from) {
  const __m256i halves = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
}

EDGEWISE_VNNI_INLINE __m512i four_at(const uint8_t* a) {
  int32_t four;
  std::memcpy(&four, a, sizeof(four));
  return _mm512_set1_epi32(four);
}

template <size_t kTileRows>
struct Sums {
  __m512 of[kTileRows][kVectors];
};

// Rows' zero points, and the 128 that their numbers are stored with, times the columns' sums.
template <size_t kTileRows>
EDGEWISE_VNNI_INLINE void begin(const Qb4Tile& tile, const Part& part, Sums<kTileRows>& sums) {
  const auto* header = reinterpret_cast<const float*>(tile.panel);
  for (size_t i = 0; i < kTileRows; ++i) {
    const __m512 zero = _mm512_set1_ps(static_cast<float>(-128 - part.row[i].zero_point));
    for (size_t j = 0; j < kVectors; ++j) {
      sums.of[i][j] = _mm512_mul_ps(zero, _mm512_loadu_ps(header + j * kLanes));
    }
  }
}

template <size_t kTileRows>
EDGEWISE_VNNI_INLINE void finish(const Qb4Tile& tile, const Part& part,
                                 const Sums<kTileRows>& sums) {
  const auto* bias = reinterpret_cast<const float*>(tile.panel) + kQb4Columns;
  const __m512 min = _mm512_set1_ps(tile.min), max = _mm512_set1_ps(tile.max);
  const uint32_t mask = tile.columns >= kQb4Columns ? ~uint32_t{0} : (1u << tile.columns) - 1;
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

template <size_t kTileRows>
EDGEWISE_VNNI_INLINE void add_products(const uint8_t* a, size_t depth, const __m512i (&w)[kVectors],
                                       __m512i (&sum)[kTileRows][kVectors]) {
#pragma GCC unroll 8
  for (size_t i = 0; i < kTileRows; ++i) {
    const __m512i x = four_at(a + i * depth);
#pragma GCC unroll 2
    for (size_t j = 0; j < kVectors; ++j) {
      // In assembly: or GCC copies each sum from register to register, twice.
      __asm__("vpdpbusd %2, %1, %0" : "+v"(sum[i][j]) : "v"(x), "v"(w[j]));
    }
  }
}

// Nibbles become bytes on the way, times 16.
template <size_t kTileRows, bool kIsCached>
EDGEWISE_VNNI void multiply_rows(const Qb4Tile& tile, const Part& part) {
  Sums<kTileRows> sums;
  begin(tile, part, sums);
  const __m512i high = _mm512_set1_epi8(static_cast<char>(0xf0));
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
        _mm_prefetch(from + kAhead, kIsCached ? _MM_HINT_T0 : _MM_HINT_NTA);
        const __m512i both = _mm512_loadu_si512(from);
        odd[j] = _mm512_and_si512(both, high);
        even[j] = _mm512_and_si512(_mm512_slli_epi16(both, 4), high);
      }
      add_products(a, tile.depth, even, sum);
      add_products(a + kStep, tile.depth, odd, sum);
    }
    _mm_prefetch(from + kAhead, kIsCached ? _MM_HINT_T0 : _MM_HINT_NTA);
    const __m512 scale[kVectors] = {scales_at(from), scales_at(from + 32)};
    from += kQb4Columns * sizeof(uint16_t);
    add_block(sum, scale, sums);
  }
  finish(tile, part, sums);
}

using Multiply = void (*)(const Qb4Tile&, const Part&);
template <bool kIsCached>
constexpr Multiply kMultiply[kRows] = {multiply_rows<1, kIsCached>, multiply_rows<2, kIsCached>,
                                       multiply_rows<3, kIsCached>, multiply_rows<4, kIsCached>,
                                       multiply_rows<5, kIsCached>};

// In parts of nearly equal size.
void multiply(const Qb4Tile& tile) {
  const auto& kernels = tile.is_cached ? kMultiply<true> : kMultiply<false>;
  const auto* row = reinterpret_cast<const Qb4Row*>(tile.a);
  const auto* a = reinterpret_cast<const uint8_t*>(tile.a + parameters_bytes(tile.rows));
  const size_t parts = divide_up(tile.rows, kRows);
  for (size_t i = 0; i < parts; ++i) {
    const size_t first = part_start(tile.rows, parts, i);
    kernels[part_start(tile.rows, parts, i + 1) - first - 1](
        tile,
        {.a = a + first * tile.depth, .row = row + first, .c = tile.c + first * tile.c_stride});
  }
}

constexpr Qb4Kernels kKernels = {.name = "avx512vnni",
                                 .step = kWord,
                                 .panel_bytes = panel_bytes,
                                 .pack = pack,
                                 .rows_bytes = rows_bytes,
                                 .quantize = quantize,
                                 .multiply = multiply};

}  // namespace

const Qb4Kernels* qb4_kernels() {
  return cpu_level().extra == CpuLevel::kVnni ? &kKernels : nullptr;
}

}  // namespace edgewise::xnnpack

#endif
