// A depthwise convolution of 8-bit integers, row by row of the results and panel by panel of the
// channels. Results are XNNPACK's, bit by bit.
#pragma once

#include <memory>

#include "backends/xnnpack/executor/fused_kernel.h"
#include "backends/xnnpack/executor/fused_kernel_weights.h"
#include "backends/xnnpack/executor/int8_channels.h"
#include "backends/xnnpack/executor/int8_kernels.h"
#include "backends/xnnpack/executor/parallel.h"

namespace edgewise::xnnpack {

// Null if such a step can run `node`, a DepthwiseConv2d; else what it asks for.
const char* int8_depthwise_rule(const Graph& graph, const GraphNode& node);

class Int8Depthwise final : public FusedKernelOf<Int8DepthwiseKernels> {
 public:
  // `state` must outlive it.
  static Result<std::unique_ptr<Step>> make(const Graph& graph, const GraphNode& node,
                                            const Int8DepthwiseKernels& kernels,
                                            ProgramState& state);

  Status reshape(const std::vector<Shape>& shapes) override;
  size_t thread_scratch_bytes() const override;
  Status set_pointers(std::span<void* const> addresses, const Scratch& scratch) override;
  Status run() override;

 private:
  Int8Depthwise(const Graph& graph, const GraphNode& node, const Int8DepthwiseKernels& kernels,
                ProgramState& state);
  size_t size() const { return window_.kernel[0]; }
  size_t panels() const { return divide_up(channels_.count, kInt8Columns); }
  // The last panel ends with the last channel, and may have some of the one before.
  size_t first_channel(size_t panel) const;
  size_t row_bytes() const;
  void copy_row(const int8_t* from, size_t step, size_t count, int8_t* to) const;
  // Some rows of the results of a panel.
  void run_rows(size_t image, size_t panel, size_t first, size_t end, std::byte* scratch) const;

  const Window window_;
  const Int8DepthwiseGroups groups_;
  const Int8Channels channels_;
  FusedKernelWeights weights_;  // bytes, panel by panel
  size_t images_ = 0, height_ = 0, width_ = 0, out_height_ = 0, out_width_ = 0;
  size_t pixels_ = 0;  // of a padded row
  const int8_t* input_ = nullptr;
  int8_t* output_ = nullptr;
  Scratch scratch_;
};

}  // namespace edgewise::xnnpack
