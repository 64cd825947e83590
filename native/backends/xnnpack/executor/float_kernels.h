// The arithmetic of fused kernels in fp32, once for each vector unit.
//
// Matrices are row-major with strides in floats. The right factor of a GEMM comes in panels
// of `columns` columns: row p of a panel lies at panel + p * panel_stride.
#pragma once

#include <cstddef>
#include <vector>

#include "backends/xnnpack/executor/weight_only_kernels.h"

namespace edgewise::xnnpack {

// Winograd's F(out x out, 3x3): `out` x `out` results from tiles of `in` x `in` pixels.
struct WinogradKernels {
  static constexpr size_t kTaps = 3;  // of a filter's row
  static constexpr size_t kMostOut = 4;
  static constexpr size_t kMostIn = kMostOut + kTaps - 1;

  const char* name;
  size_t out;
  size_t in;
  // in x kTaps, G: filters g become G g G^T.
  const double (*filter)[kTaps];
  // `pixels`: of the tile, each `channels` floats. Position i goes to out + i * out_stride.
  void (*transform_input)(const float* const* pixels, size_t channels, float* out,
                          size_t out_stride);
  // The inverse; pixels beyond the image are null, and so is `residual`, or it has as many.
  void (*transform_output)(const float* in, size_t in_stride, size_t channels, const float* bias,
                           const float* const* residual, float min, float max,
                           float* const* pixels);

  constexpr size_t positions() const { return in * in; }
};

struct GemmTile {
  size_t rows = 0;       // any number but 0: in blocks of nearly equal size
  size_t most_rows = 0;  // of a block, at most FloatKernels::rows; 0: as many
  size_t depth = 0;      // of a segment
  // The parts of which a row of `a` consists, one after the other in a panel.
  size_t segments = 1;
  size_t segment_stride = 0;
  const float* a = nullptr;
  size_t a_stride = 0;
  const float* panel = nullptr;
  size_t panel_stride = 0;
  size_t columns = 0;  // of the panel: whole vectors are computed, no more than these are written
  float* c = nullptr;
  size_t c_stride = 0;
  // Memory to prefetch, for what comes after this tile: `ahead_step` bytes more in each step of a
  // block.
  const char* ahead = nullptr;
  size_t ahead_step = 0;
};

// What is done to a result before it is stored: + bias + residual, then the clamp.
struct Finish {
  const float* bias = nullptr;      // of the panel's columns; never null
  const float* residual = nullptr;  // null: none
  size_t residual_stride = 0;
  float min = 0;
  float max = 0;
};

// Some outputs of a row of a depthwise convolution, for a panel of channels.
struct DepthwiseRow {
  static constexpr size_t kMostSide = 5;
  size_t side = 0;                    // of the window: 3 or 5
  const float* rows[kMostSide] = {};  // what the first output's taps read
  size_t pixel_stride = 0;            // floats between neighbouring pixels of the input
  size_t step = 0;                    // from one output's taps to the next one's
  const float* weights = nullptr;     // of each tap, then the bias: FloatKernels::columns each
  size_t columns = 0;                 // of the panel: whole vectors are computed and written
  size_t count = 0;
  float* out = nullptr;
  size_t out_stride = 0;
  float min = 0;
  float max = 0;
  bool swishes = false;  // hardswish, after the clamp
};

// Rows of `depth` x become (x - mean) / sqrt(mean of that squared + epsilon) * weight + bias.
struct Normalization {
  bool is_centered = false;  // else no mean is subtracted
  float mean_factor = 0;     // mean = sum of x * mean_factor + mean_offset
  float mean_offset = 0;
  float square_factor = 0;
  float epsilon = 0;
  const float* weight = nullptr;  // null: 1
  const float* bias = nullptr;    // null: 0
  size_t rows = 0;
  size_t depth = 0;
  const float* in = nullptr;
  float* out = nullptr;  // may be `in`
};

// GEMMs with less of one of these are faster in XNNPACK, as measured. `rule` says it.
struct GemmLimits {
  const char* rule;
  size_t rows;
  size_t depth;     // unless a residual comes along
  size_t products;  // multiplications
  size_t columns;   // computed at once
};

struct FloatKernels {
  const char* name;
  // Whether these alone, in place of XNNPACK's, were measured to be faster.
  bool gemm_pays;
  bool depthwise_pays;
  bool is_narrow;  // vectors of four floats
  GemmLimits gemm_limits;
  size_t rows;
  size_t columns;
  size_t lanes;  // of a vector
  // `finish`: null for the bare matrix product.
  void (*multiply)(const GemmTile& tile, const Finish* finish);
  WinogradKernels small_winograd;  // F(2x2, 3x3)
  WinogradKernels large_winograd;  // F(4x4, 3x3)
  void (*depthwise)(const DepthwiseRow& row);
  // In place; `count` is a multiple of `lanes`.
  void (*hardswish)(float* x, size_t count);
  // Row by row x = exp(scale * (x - max of the row)); `sums` gets the rows' sums.
  void (*exponentials)(float* x, size_t stride, size_t rows, size_t columns, float scale,
                       float* sums);
  void (*normalize)(const Normalization& rows);
  // to[i][j] = from[j][i] for i < columns, j < rows.
  void (*transpose)(const float* from, size_t from_stride, size_t rows, size_t columns, float* to,
                    size_t to_stride);
  const WeightOnlyKernels* weight_only;
};

// As they are used on cores that run in order.
FloatKernels without_gemms(FloatKernels kernels);
// For this CPU; null if XNNPACK's own kernels are better on it.
const FloatKernels* float_kernels();
// All that this CPU can run, the best last; may be none. For tests.
std::vector<const FloatKernels*> all_float_kernels();

}  // namespace edgewise::xnnpack
