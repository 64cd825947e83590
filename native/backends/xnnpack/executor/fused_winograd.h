// 3x3 convolutions of stride 1 by Winograd's F(4x4, 3x3): 36 products for 16 pixels instead of 144,
// or by F(2x2, 3x3), 16 for 4 instead of 36, where tiles are few.
//
// Tiles of the image are transformed, multiplied by transformed weights at each of the positions,
// and transformed back. That is done for some tiles at a time, so that what lies between stays in
// a core's cache.
#pragma once

#include <memory>

#include "backends/xnnpack/executor/float_kernels.h"
#include "backends/xnnpack/executor/fused_kernel.h"
#include "backends/xnnpack/executor/fused_kernel_weights.h"
#include "backends/xnnpack/executor/linear_nodes.h"
#include "backends/xnnpack/executor/winograd_tiles.h"

namespace edgewise::xnnpack {

// Null if such a kernel can run `nodes`, and is faster than XNNPACK; else what it asks for.
const char* winograd_rule(const Graph& graph, const std::vector<Shape>& shapes,
                          const LinearNodes& nodes);

class FusedWinograd final : public FusedKernel {
 public:
  // `nodes` must suit it, or at least be nodes that it can run. `state` must outlive it.
  static Result<std::unique_ptr<Step>> make(const Graph& graph, const LinearNodes& nodes,
                                            const FloatKernels& kernels, ProgramState& state);

  bool can_take(const std::vector<Shape>& shapes) const override { return nodes_.can_take(shapes); }
  Status reshape(const std::vector<Shape>& shapes) override;
  size_t thread_scratch_bytes() const override;
  Status set_pointers(std::span<void* const> addresses, const Scratch& scratch) override;
  Status run() override;

 private:
  FusedWinograd(const LinearNodes& nodes, const Window& window, const FloatKernels& kernels,
                const WinogradKernels& winograd, ProgramState& state)
      : FusedKernel(winograd.name, kernels, state, {nodes.input, nodes.residual}, {nodes.output}),
        nodes_(nodes),
        winograd_(winograd),
        in_channels_(window.group_inputs),
        out_channels_(window.group_outputs),
        tiles_(winograd.out, winograd.in, window) {}
  // One of blocks_ of tiles, one of column_parts_ of the output channels.
  void run_block(size_t block, size_t part, float* scratch) const;
  void transform_tile(size_t tile, float* out) const;
  // Both for the output channels [from, to).
  void multiply(size_t tiles, size_t from, size_t to, const float* in, float* out) const;
  void finish_tile(size_t tile, size_t from, size_t to, const float* in) const;
  size_t packed_floats() const;  // of the weights, without what is behind them
  // Floats between the positions of a block's transformed input and of its products.
  size_t input_stride() const;
  size_t output_stride() const;

  const LinearNodes nodes_;
  const WinogradKernels& winograd_;
  const size_t in_channels_, out_channels_;
  FusedKernelWeights weights_;  // panels of each position; zeros for padding; the bias
  WinogradTiles tiles_;
  size_t blocks_ = 1;
  size_t column_parts_ = 1;
  const float* input_ = nullptr;
  const float* residual_ = nullptr;
  float* output_ = nullptr;
  Scratch scratch_;
};

}  // namespace edgewise::xnnpack
