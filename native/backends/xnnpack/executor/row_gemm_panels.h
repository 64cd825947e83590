// What the kernels for x86 make of rows and of weights of 4 or 8 bits: rows' parameters, and
// panels.
#pragma once

#include "backends/xnnpack/executor/parallel.h"
#include "backends/xnnpack/executor/row_gemm_kernels.h"

namespace edgewise::xnnpack {

inline constexpr size_t kWord = 8;  // weights of a column that are packed together

// ---- rows
//
// Each row's parameters; then, row by row, what a kernel makes of it.

inline size_t parameters_bytes(size_t rows) {
  return round_up(rows * sizeof(QuantizedRow), kCacheLine);
}

// An odd number of cache lines: rows of a tile would lie in few sets of the cache else.
inline size_t row_stride(size_t bytes) { return (divide_up(bytes, kCacheLine) | 1) * kCacheLine; }

// Some rows of a tile.
struct Part {
  const std::byte* a = nullptr;
  size_t stride = 0;
  const QuantizedRow* row = nullptr;
  float* c = nullptr;
};

// run(part, rows) for parts of nearly equal size, of `most` rows at most; all but the last have a
// multiple of `step` rows. `stride`: of rows, in bytes.
template <typename Run>
void for_each_part(const RowGemmTile& tile, size_t stride, size_t most, size_t step, Run run) {
  const auto* row = reinterpret_cast<const QuantizedRow*>(tile.a);
  const std::byte* a = tile.a + parameters_bytes(tile.rows);
  const size_t parts = divide_up(tile.rows, most), steps = divide_up(tile.rows, step);
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

// ---- weights

// How a nibble stands for nibble - 8: as it is, or in two's complement.
enum class Nibbles : uint8_t { kUnsigned, kSigned };

// A panel of qbint4: of each column the sum of its weights, times their scales, and the bias; then
// block by block the weights, a word of each column after the other, and the scales.
//
// Of qcint4 and qcint8: of each column the sum of its weights, its scale and its bias; then the
// weights, eight of each column after the other: nibbles, or bytes, the four with even indices of
// all columns first. Weights behind the last one are zero. (With AVX2, 16 columns after the other,
// two bytes of each.)
//
// Columns that there are not have scales of zero.
inline constexpr size_t kBlocksHeader = 2 * kRowGemmColumns * sizeof(float);
inline constexpr size_t kChannelsHeader = 3 * kRowGemmColumns * sizeof(float);
inline constexpr size_t kWordOfBytes = kRowGemmColumns * sizeof(uint32_t);  // four of each column

// Whether panels can hold the filter, and 32 bits the sums of products with it.
bool fits_panels(const GraphValue& filter);
size_t panel_bytes(const GraphValue& filter);
// See RowGemmKernels. `factor`: of the sums of qbint4.
void pack_panel(const GraphValue& filter, const float* bias, size_t first, Nibbles nibbles,
                float factor, std::byte* panel);

// Of qcint4 and qcint8: what is before the weights. `sums`: of the columns' weights.
void pack_channels_header(const GraphValue& filter, const float* bias, size_t first,
                          const int32_t (&sums)[kRowGemmColumns], std::byte* panel);

#ifdef EDGEWISE_HAS_ROW_GEMM_X86
const RowGemmKernels* row_gemm_kernels_avx2(DataType weights);
#endif

}  // namespace edgewise::xnnpack
