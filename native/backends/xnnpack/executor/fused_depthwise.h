// A block around a depthwise convolution as one kernel, so that what lies between its convolutions
// stays in a core's cache. Channels are computed in panels, as many as a GEMM's panel has; the
// rows that the depthwise convolution of a panel reads are in a ring of rows, with the padding
// around them.
//
// By rows: each thread takes bands of rows and passes them through all convolutions, some rows (a
// group) at a time. By panels, which suits small images: each takes panels of channels and leaves
// the results to a second loop, the last GEMM; neighbouring bands compute no row twice then.
#pragma once

#include <memory>

#include "backends/xnnpack/executor/convolution_image.h"
#include "backends/xnnpack/executor/depthwise_nodes.h"
#include "backends/xnnpack/executor/fused_kernel.h"
#include "backends/xnnpack/executor/packed_gemm.h"

namespace edgewise::xnnpack {

// Null if such a kernel runs `nodes`, or what it leaves of them, faster than XNNPACK: all, or the
// depthwise convolution alone. Else what it asks for.
const char* depthwise_rule(const std::vector<Shape>& shapes, const FloatKernels& kernels,
                           DepthwiseNodes* nodes);

class FusedDepthwise final : public FusedKernel {
 public:
  // `nodes` must suit it, or at least be nodes that it can run. `state` must outlive it.
  static Result<std::unique_ptr<Step>> make(const Graph& graph, const DepthwiseNodes& nodes,
                                            const FloatKernels& kernels, ProgramState& state);

  bool can_take(const std::vector<Shape>& shapes) const override {
    return !nodes_.after || nodes_.after->can_take(shapes);
  }
  Status reshape(const std::vector<Shape>& shapes) override;
  size_t scratch_bytes() const override;
  size_t thread_scratch_bytes() const override;
  Status set_pointers(std::span<void* const> addresses, const Scratch& scratch) override;
  Status run() override;

 private:
  FusedDepthwise(const DepthwiseNodes& nodes, const FloatKernels& kernels, ProgramState& state)
      : FusedKernel("Depthwise Convolution", kernels, state,
                    {nodes.first_value(), nodes.residual()}, {nodes.last_value()}),
        nodes_(nodes),
        source_(nodes.before_window) {}
  const float* image(size_t index) const;
  // What is left and right of the image in each row of a ring, which stays so.
  void clear_padding(float* ring) const;
  // Row `y` of the depthwise convolution's padded input, a panel of it, into the ring.
  void fill_row(const float* image, size_t y, size_t panel, float* ring, float* spare) const;
  // Row `y` of its results, a panel of it, into the row `results`.
  void convolve_row(size_t y, size_t panel, const float* ring, float* results, float* spare) const;
  // What the last GEMM makes of `count` pixels.
  Rows after_rows(size_t first, size_t count, const float* results) const;
  // Output rows [from, to) of an image. `goes_on`: the rings have what the row before read.
  void run_band(size_t index, size_t from, size_t to, bool goes_on, float* scratch) const;
  void run_panel(size_t panel, size_t index, size_t from, size_t to, float* scratch) const;
  // Channels of a pixel among the results: those that fill up the last panel, too, if the results
  // go no further than to the last GEMM.
  size_t result_stride() const;
  // In floats: a ring, the results, room for a row on its way, what a thread has for itself.
  size_t ring_floats() const;
  size_t result_floats() const;
  size_t spare_floats() const;
  size_t thread_floats() const;

  const DepthwiseNodes nodes_;
  PackedGemm before_;           // if nodes_.before
  ConvolutionImage source_;     // that it reads, if it is wide
  FusedKernelWeights weights_;  // for each panel of channels: the taps, the bias
  PackedGemm after_;            // if nodes_.after
  size_t side_ = 0;             // of the depthwise convolution's window
  size_t channels_ = 0;
  size_t panels_ = 0;
  size_t pixel_floats_ = 0;  // in a ring
  size_t images_ = 0;
  size_t source_elements_ = 0;           // of an image of the first value
  size_t in_height_ = 0, in_width_ = 0;  // of the depthwise convolution
  size_t out_height_ = 0, out_width_ = 0;
  bool is_by_panel_ = false;
  size_t bands_ = 1;               // of an image
  std::vector<size_t> next_item_;  // of each thread: the band below its last one
  size_t group_rows_ = 1;          // of the output
  size_t ring_rows_ = 0, row_floats_ = 0;
  const float* input_ = nullptr;
  const float* residual_ = nullptr;
  float* output_ = nullptr;
  Scratch scratch_;
  // Of all panels, for the convolution after it.
  float* shared_results() const { return reinterpret_cast<float*>(scratch_.shared); }
};

}  // namespace edgewise::xnnpack
