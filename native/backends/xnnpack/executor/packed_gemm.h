// GEMM with constant weights, as the fused kernels that compute one share it.
#pragma once

#include "backends/xnnpack/executor/float_kernels.h"
#include "backends/xnnpack/executor/fused_kernel_weights.h"
#include "backends/xnnpack/executor/linear_nodes.h"

namespace edgewise::xnnpack {

// Weights up to this size stay in a core's cache while rows pass by.
inline constexpr size_t kCachedWeights = 512 * 1024;
// Bytes of a GEMM's weights, packed.
size_t packed_bytes(const FloatKernels& kernels, size_t depth, size_t columns);

// A fully connected node or a 1x1 convolution.
bool is_gemm(const GraphNode& node);

// Some rows of a GEMM: of its left factor, and of its results.
struct Rows {
  size_t rows = 0;
  const float* in = nullptr;
  size_t in_stride = 0;
  // A row lies in so many parts of equal size.
  size_t segments = 1;
  size_t segment_stride = 0;
  float* out = nullptr;  // the first column
  size_t out_stride = 0;
  const float* residual = nullptr;  // null: none; laid out as `out`
};

// Which of how many row tiles a panel is multiplied with. While it is, a part of the next panel is
// prefetched.
struct TileIndex {
  size_t index = 0;
  size_t tiles = 1;
};

// The weights of a GEMM, packed into panels, and what is done to its results.
class PackedGemm {
 public:
  PackedGemm() = default;
  // Of a convolution with a larger window, each row of the left factor is all that a result is
  // made of. `kernels` must outlive it.
  static Result<PackedGemm> make(const Graph& graph, const LinearNodes& nodes,
                                 const FloatKernels& kernels, ProgramState& state);

  size_t depth() const { return depth_; }
  size_t columns() const { return columns_; }
  size_t panels() const { return padded_ / kernels_->columns; }
  size_t panel_bytes() const { return depth_ * kernels_->columns * sizeof(float); }
  // Whether the weights stay in a core's cache while rows pass by.
  bool is_cached() const { return packed_bytes(*kernels_, depth_, columns_) <= kCachedWeights; }

  // All columns; at work are all threads of the pool.
  void run_all(pthreadpool_t threads, const Rows& all) const;
  // The columns of one panel.
  void run(size_t panel, const Rows& rows, TileIndex tile) const;
  // Any number of rows, `most_rows` at a time, to rows.out[0] and on, with columns that fill up the
  // last vector.
  void run_padded(size_t panel, const Rows& rows, size_t most_rows) const;

 private:
  size_t columns_of(size_t panel) const;
  GemmTile tile_of(size_t panel, const Rows& rows, TileIndex tile) const;
  Finish finish_of(size_t panel) const;

  const FloatKernels* kernels_ = nullptr;
  FusedKernelWeights weights_;  // panels, then the bias, filled up as they are
  size_t depth_ = 0;
  size_t columns_ = 0;
  size_t padded_ = 0;
  float min_ = 0, max_ = 0;
};

}  // namespace edgewise::xnnpack
