// GEMM and GEMV of rows that are quantized at run time with weights of 4 or 8 bits, where these are
// faster than XNNPACK's: what the step that runs them asks of a CPU's kernels.
//
// A row is x = scale * (q - zero point), a weight w = scale * (nibble - 8) or scale * byte. Scales
// are those of blocks of a column (qbint4) or of columns (qcint4, qcint8).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "backends/xnnpack/graph.h"

namespace edgewise::xnnpack {

inline constexpr size_t kRowGemmColumns = 32;  // of a panel
// Of products of 8 bits, 255 times -128 each, a sum of 32 bits holds this many.
inline constexpr size_t kMostSummed = 65536;

// x = scale * (q - zero_point), q from -128 to 127.
struct QuantizedRow {
  float scale = 0;
  int32_t zero_point = 0;
};

// Of numbers from `min` to `max`, as PyTorch chooses them. XNNPACK's and KleidiAI's zero point is
// another one where it lies between two numbers. `zeros` is the sum of all of them times zero: NaN
// if one is NaN or infinite, and so are the row's products then.
inline QuantizedRow quantized_row(float min, float max, float zeros) {
  min = std::min(min, 0.0f);
  max = std::max(max, 0.0f);
  const float scale = min == max ? 1.0f : (max - min) / 255.0f;
  const float zero_point = -128.0f - std::nearbyint(min / scale);
  // NaN, of infinities, becomes a bound.
  return {.scale = scale + zeros,
          .zero_point = static_cast<int32_t>(std::min(127.0f, std::max(-128.0f, zero_point)))};
}

struct RowGemmTile {
  DataType weights = DataType::kInvalid;
  size_t rows = 0;  // any number but 0
  size_t depth = 0;
  size_t block = 0;              // of qbint4
  const std::byte* a = nullptr;  // what `quantize` wrote, of all rows
  const std::byte* panel = nullptr;
  size_t columns = 0;  // that are written
  float* c = nullptr;
  size_t c_stride = 0;
  float min = 0;
  float max = 0;
  bool is_cached = true;  // the weights; if not, they may be prefetched past the caches
};

struct RowGemmKernels {
  const char* name;
  bool (*takes)(const GraphValue& filter);
  // A panel: kRowGemmColumns columns' weights, scales and biases. `pack` takes column `first` of
  // the filter [N, depth] and those behind it, as many as there are. `bias` may be null.
  size_t (*panel_bytes)(const GraphValue& filter);
  void (*pack)(const GraphValue& filter, const float* bias, size_t first, std::byte* panel);
  // Rows as 8-bit integers, each quantized as PyTorch does it. `quantize` writes row number `row`
  // of `rows` to its place in `to`, which has rows_bytes() and is aligned as a cache line.
  size_t (*rows_bytes)(size_t rows, size_t depth);
  void (*quantize)(const float* x, size_t rows, size_t depth, size_t row, std::byte* to);
  void (*multiply)(const RowGemmTile& tile);
};

// Null where XNNPACK's are used: on x86 without AVX2, and with AVX-512 unless it has VNNI; on
// 64-bit Arm without dot products of bytes, or KleidiAI in this build (with dot products alone it
// takes blocks, with products of matrices of bytes columns, too). With AVX2 those of 8 bits are
// others than those of 4, and read rows in another form. On Windows GCC does not align what it
// spills of 512 bits (its bug 54412).
#if defined(__x86_64__) && !defined(_WIN32)
#define EDGEWISE_HAS_ROW_GEMM_X86
#endif
#if defined(EDGEWISE_HAS_ROW_GEMM_X86) || defined(EDGEWISE_HAS_KLEIDIAI)
const RowGemmKernels* row_gemm_kernels(DataType weights);
#else
constexpr const RowGemmKernels* row_gemm_kernels(DataType) { return nullptr; }
#endif

}  // namespace edgewise::xnnpack
