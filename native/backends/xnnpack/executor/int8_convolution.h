// A convolution or fully connected node of 8-bit integers as a GEMM of its input as it lies: what a
// window has in one row of the image, padded if need be, lies side by side. Results are XNNPACK's,
// bit by bit.
#pragma once

#include <memory>

#include "backends/xnnpack/executor/convolution_image.h"
#include "backends/xnnpack/executor/fused_kernel.h"
#include "backends/xnnpack/executor/fused_kernel_weights.h"
#include "backends/xnnpack/executor/int8_channels.h"
#include "backends/xnnpack/executor/int8_kernels.h"
#include "backends/xnnpack/executor/linear_nodes.h"
#include "backends/xnnpack/executor/parallel.h"

namespace edgewise::xnnpack {

// Null if such a step can run `node`, a Conv2d or FullyConnected, and is faster than XNNPACK; else
// what it asks for.
const char* int8_convolution_rule(const Graph& graph, const std::vector<Shape>& shapes,
                                  const GraphNode& node, const Int8Kernels& kernels);

// A node that such a step can run, and the sum of its result and another value that follows, if
// `kernels` have one and nothing else reads the result; else kNoNode and kNone.
struct Int8ConvolutionNodes {
  size_t convolution = Readers::kNoNode, sum = Readers::kNoNode;
  uint32_t result = kNone;  // of the convolution itself
  uint32_t residual = kNone;
  uint32_t output = kNone;

  std::vector<size_t> nodes() const;
};
Int8ConvolutionNodes int8_convolution_nodes(const Graph& graph, const std::vector<Shape>& shapes,
                                            const Readers& readers,
                                            const std::vector<bool>& is_taken, size_t convolution,
                                            const Int8Kernels& kernels);

class Int8Convolution final : public FusedKernelOf<Int8Kernels> {
 public:
  // `state` must outlive it.
  static Result<std::unique_ptr<Step>> make(const Graph& graph, const Int8ConvolutionNodes& nodes,
                                            const Int8Kernels& kernels, ProgramState& state);

  bool can_take(const std::vector<Shape>& shapes) const override {
    return residual_value_ == kNone || shapes[residual_value_] == shapes[result_value_];
  }
  Status reshape(const std::vector<Shape>& shapes) override;
  size_t scratch_bytes() const override;
  size_t thread_scratch_bytes() const override;
  Status set_pointers(std::span<void* const> addresses, const Scratch& scratch) override;
  Status run() override;

 private:
  Int8Convolution(const Graph& graph, const Int8ConvolutionNodes& nodes, const Int8Kernels& kernels,
                  ProgramState& state);
  // Whether rows of the input are those of the GEMM, in their order.
  bool is_gemm() const;
  bool is_cached() const;
  // Panels that are multiplied at a time count as one.
  size_t panels() const { return divide_up(channels_.count, kernels_.columns); }
  bool converts() const { return kernels_.convert != nullptr; }
  size_t rows() const { return images_ * out_height_ * out_width_; }  // of results
  // Of a GEMM: bytes of a row that kernels read, and rows of the input as they read them, in `copy`
  // if they are converted.
  size_t row_bytes() const { return image_.channels() * kernels_.number_bytes; }
  const std::byte* read_rows(size_t first, size_t count, std::byte* copy) const;
  size_t result_bytes() const;  // of a thread, before a residual is added
  // Rows that stay in a core's first cache, and whether panels pass by them: all weights stay in
  // its second one.
  size_t rows_of_item() const;
  bool runs_by_rows() const;
  // Some rows of the GEMM: `tile` without what depends on the panel. `results`: of the first row.
  void run_panel(size_t panel, Int8Tile tile, int8_t* results) const;
  // Adds the residual to `count` rows of results, which become the output's.
  void add_residual(size_t first_row, size_t count, const int8_t* results) const;
  int8_t* output_row(size_t row) const { return output_ + row * channels_.count; }
  void run_all() const;
  void run_image(const int8_t* image, size_t first_row) const;

  const Window window_;
  ConvolutionImage image_;
  const Int8Channels channels_;
  FusedKernelWeights weights_;  // bytes, panel by panel
  size_t depth_ = 0;            // of a segment
  size_t images_ = 0, out_height_ = 0, out_width_ = 0;
  const uint32_t result_value_;    // of the convolution itself
  const uint32_t residual_value_;  // or kNone
  Int8Sum sum_;                    // with the residual, if there is one
  const int8_t* input_ = nullptr;
  const int8_t* residual_ = nullptr;
  int8_t* output_ = nullptr;
  Scratch scratch_;  // for the input as the kernels read it
};

}  // namespace edgewise::xnnpack
