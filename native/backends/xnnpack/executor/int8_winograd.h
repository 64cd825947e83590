// 3x3 convolutions of 8-bit integers, of stride 1, by Winograd's F(2x2, 3x3): 16 products for 4
// pixels instead of 36. Results are XNNPACK's, bit by bit.
//
// As with floats, some tiles at a time are transformed, multiplied and transformed back, so that
// what lies between stays in a core's cache.
#pragma once

#include <memory>

#include "backends/xnnpack/executor/fused_kernel.h"
#include "backends/xnnpack/executor/fused_kernel_weights.h"
#include "backends/xnnpack/executor/int8_channels.h"
#include "backends/xnnpack/executor/int8_kernels.h"
#include "backends/xnnpack/executor/winograd_tiles.h"

namespace edgewise::xnnpack {

// Null if such a step can run `node`, and is faster than a GEMM; else what it asks for.
const char* int8_winograd_rule(const Graph& graph, const std::vector<Shape>& shapes,
                               const GraphNode& node);

class Int8Winograd final : public FusedKernelOf<Int8WinogradKernels> {
 public:
  // `node` must suit it. `state` must outlive it.
  static Result<std::unique_ptr<Step>> make(const Graph& graph, const GraphNode& node,
                                            const Int8WinogradKernels& kernels,
                                            ProgramState& state);

  Status reshape(const std::vector<Shape>& shapes) override;
  size_t thread_scratch_bytes() const override;
  Status set_pointers(std::span<void* const> addresses, const Scratch& scratch) override;
  Status run() override;

 private:
  Int8Winograd(const Graph& graph, const GraphNode& node, const Int8WinogradKernels& kernels,
               ProgramState& state);
  void run_block(size_t block, int16_t* scratch) const;
  size_t tiles_of_block() const { return divide_up(tiles_.count(), blocks_); }
  // Output channels whose products are computed before they are transformed back.
  size_t columns() const;
  // Between the positions of a block's transformed input and of its products, in elements.
  size_t input_stride() const;
  size_t output_stride() const;

  const size_t in_channels_;
  const Int8Channels channels_;
  std::vector<int8_t> padding_;  // a pixel
  FusedKernelWeights weights_;   // 16-bit integers, panel by panel of each position
  WinogradTiles tiles_;
  size_t blocks_ = 1;
  const int8_t* input_ = nullptr;
  int8_t* output_ = nullptr;
  Scratch scratch_;
};

}  // namespace edgewise::xnnpack
