// A convolution or fully connected node of 8-bit integers as a GEMM of its input as it lies: what a
// window has in one row of the image, padded if need be, lies side by side. Results are XNNPACK's,
// bit by bit.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backends/xnnpack/executor/fused_kernel_weights.h"
#include "backends/xnnpack/executor/int8_kernels.h"
#include "backends/xnnpack/executor/step.h"
#include "pthreadpool.h"

namespace edgewise::xnnpack {

// Whether such a step can run `node`, and is faster than XNNPACK.
bool suits_int8_convolution(const Graph& graph, const std::vector<Shape>& shapes,
                            const GraphNode& node, const Int8Kernels& kernels);

class Int8Convolution final : public Step {
 public:
  // `state` must outlive it.
  static Result<std::unique_ptr<Step>> make(const Graph& graph, const GraphNode& node,
                                            const Int8Kernels& kernels, ProgramState& state);

  const std::vector<uint32_t>& reads() const override { return reads_; }
  const std::vector<uint32_t>& writes() const override { return writes_; }
  std::vector<ProfilePart> parts() const override;
  Status reshape(const std::vector<Shape>& shapes) override;
  size_t scratch_bytes() const override;
  Status set_pointers(std::span<void* const> addresses, std::byte* scratch) override;
  Status run() override;

 private:
  Int8Convolution(const Graph& graph, const GraphNode& node, const Int8Kernels& kernels,
                  ProgramState& state);
  const int8_t* panel_of(size_t panel) const;
  // Row `y` of the padded image.
  void pad_row(const int8_t* image, size_t y) const;
  // Some rows of the GEMM: `tile` without what depends on the panel.
  void run_rows(Int8Tile tile, size_t first_row) const;
  void run_all() const;
  void run_image(const int8_t* image, size_t first_row) const;

  const Int8Kernels& kernels_;
  const pthreadpool_t threads_;
  const Window window_;
  const std::vector<uint32_t> reads_, writes_;
  int8_t zero_ = 0;  // of the input
  Int8Range range_;
  FusedKernelWeights weights_;  // bytes, panel by panel
  std::vector<int32_t> bias_;   // with the input's zero point; filled up, as `scales_`
  std::vector<float> scales_;
  size_t columns_ = 0, depth_ = 0;  // of a segment
  size_t images_ = 0, height_ = 0, width_ = 0, channels_ = 0;
  size_t out_height_ = 0, out_width_ = 0;
  bool copies_ = false;  // else the input is read where it lies
  size_t padded_height_ = 0, row_bytes_ = 0;
  const int8_t* input_ = nullptr;
  int8_t* output_ = nullptr;
  int8_t* padded_ = nullptr;
};

}  // namespace edgewise::xnnpack
