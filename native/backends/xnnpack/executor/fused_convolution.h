// A convolution as a GEMM of its input as it lies: what a window has in one row of the image,
// padded if need be, lies side by side.
#pragma once

#include <memory>

#include "backends/xnnpack/executor/convolution_image.h"
#include "backends/xnnpack/executor/fused_kernel.h"
#include "backends/xnnpack/executor/packed_gemm.h"

namespace edgewise::xnnpack {

// Null if such a kernel can run `nodes`, and is faster than XNNPACK; else what it asks for.
const char* convolution_rule(const Graph& graph, const std::vector<Shape>& shapes,
                             const LinearNodes& nodes, const FloatKernels& kernels);

class FusedConvolution final : public FusedKernel {
 public:
  // `nodes` must suit it, or at least be nodes that it can run with `kernels`, which take segments.
  // `state` must outlive it.
  static Result<std::unique_ptr<Step>> make(const Graph& graph, const LinearNodes& nodes,
                                            const FloatKernels& kernels, ProgramState& state);

  bool can_take(const std::vector<Shape>& shapes) const override { return nodes_.can_take(shapes); }
  Status reshape(const std::vector<Shape>& shapes) override;
  size_t scratch_bytes() const override;
  Status set_pointers(std::span<void* const> addresses, const Scratch& scratch) override;
  Status run() override;

 private:
  FusedConvolution(const LinearNodes& nodes, const Window& window, const FloatKernels& kernels,
                   ProgramState& state)
      : FusedKernel("Convolution", kernels, state, {nodes.input, nodes.residual}, {nodes.output}),
        nodes_(nodes),
        window_(window),
        image_(window) {}
  // Row `y` of an image's results, of which `padded` is the input.
  Rows row(size_t image, const float* padded, size_t y) const;

  const LinearNodes nodes_;
  const Window window_;
  ConvolutionImage image_;
  PackedGemm gemm_;
  size_t images_ = 0, out_height_ = 0, out_width_ = 0;
  const float* input_ = nullptr;
  const float* residual_ = nullptr;
  float* output_ = nullptr;
  float* padded_ = nullptr;
};

}  // namespace edgewise::xnnpack
