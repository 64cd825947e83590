// An inverted residual block as one step: rows of the image pass through all its convolutions, so
// that what lies between them never leaves a core's cache.
//
// A band of output rows is computed by one thread, some rows (a group) at a time. The rows that the
// depthwise convolution reads are in a ring of rows for each panel of channels, with the padding
// around them; its results, all channels of a group, go to the last product.
#pragma once

#include <memory>

#include "backends/xnnpack/steps/depthwise_nodes.h"
#include "backends/xnnpack/steps/products.h"
#include "backends/xnnpack/steps/step.h"

namespace edgewise::xnnpack {

// Whether such a step can run `nodes`, and is faster than XNNPACK.
bool suits_depthwise(const std::vector<Shape>& shapes, const DepthwiseNodes& nodes,
                     const FloatKernels& kernels);

class DepthwiseStep final : public Step {
 public:
  // `nodes` must suit it, or at least be nodes that it can run. `state` must outlive it.
  static Result<std::unique_ptr<Step>> make(const Graph& graph, const DepthwiseNodes& nodes,
                                            const FloatKernels& kernels, ProgramState& state);

  const std::vector<uint32_t>& reads() const override { return reads_; }
  const std::vector<uint32_t>& writes() const override { return writes_; }
  Status reshape(const std::vector<Shape>& shapes) override;
  size_t scratch_bytes() const override;
  Status set_pointers(std::span<void* const> addresses, std::byte* scratch) override;
  Status run() override;
  std::vector<ProfilePart> parts() const override {
    return {{.name = std::string("edgewise Depthwise and pointwise convolutions ") + kernels_.name,
             .nodes = {},
             .counters = {}}};
  }

 private:
  DepthwiseStep(const FloatKernels& kernels, pthreadpool_t threads)
      : kernels_(kernels), threads_(threads) {}
  uint32_t input() const { return nodes_.before ? nodes_.before->input : nodes_.input; }
  void run_band(size_t image, size_t from, size_t to, float* scratch) const;
  // Row `y` of the depthwise convolution's input, a panel of it, into the ring.
  void fill_row(const float* image, size_t y, size_t panel, float* ring) const;
  void convolve_row(size_t y, size_t panel, const float* ring, float* out) const;
  void project(size_t first_pixel, size_t pixels, const float* in) const;
  // Of a row in the ring, in floats.
  size_t row_floats() const;
  size_t ring_floats() const;  // of a panel
  size_t thread_floats() const;

  const FloatKernels& kernels_;
  pthreadpool_t threads_;
  DepthwiseNodes nodes_;
  std::vector<uint32_t> reads_;
  std::vector<uint32_t> writes_;
  PackedProduct before_;  // if nodes_.before
  StepWeights weights_;   // for each panel of channels: the taps, the bias
  PackedProduct after_;
  size_t channels_ = 0;
  size_t panels_ = 0;
  size_t images_ = 0;
  size_t in_height_ = 0, in_width_ = 0;
  size_t out_height_ = 0, out_width_ = 0;
  size_t bands_ = 1;       // of an image
  size_t group_rows_ = 1;  // of the output
  size_t ring_rows_ = 0;
  const float* input_ = nullptr;
  const float* residual_ = nullptr;
  float* output_ = nullptr;
  float* scratch_ = nullptr;
};

}  // namespace edgewise::xnnpack
