// Products of matrices and convolutions with constant weights by the kernels for SME2. Those of
// 8-bit integers are XNNPACK's, bit by bit.
#pragma once

#include <memory>
#include <optional>

#include "backends/xnnpack/executor/convolution_image.h"
#include "backends/xnnpack/executor/fused_kernel.h"
#include "backends/xnnpack/executor/fused_kernel_weights.h"
#include "backends/xnnpack/executor/linear_nodes.h"
#include "backends/xnnpack/executor/sme_kernels.h"

namespace edgewise::xnnpack {

// `node`, a Conv2d or FullyConnected, and what such a step does with it; nothing if there are no
// kernels for its numbers on this CPU.
std::optional<LinearNodes> sme_nodes(const Graph& graph, const std::vector<Shape>& shapes,
                                     const Readers& readers, const std::vector<bool>& is_taken,
                                     size_t node);
// Null if such a step can run `nodes`; else what it asks for.
const char* sme_rule(const Graph& graph, const std::vector<Shape>& shapes,
                     const LinearNodes& nodes);

class SmeGemm final : public FusedKernelOf<SmeKernels> {
 public:
  // `nodes` must suit it. `state` must outlive it.
  static Result<std::unique_ptr<Step>> make(const Graph& graph, const LinearNodes& nodes,
                                            ProgramState& state);

  bool can_take(const std::vector<Shape>& shapes) const override { return nodes_.can_take(shapes); }
  Status reshape(const std::vector<Shape>& shapes) override;
  size_t scratch_bytes() const override { return image_.copied() * kernels_.number_bytes; }
  size_t thread_scratch_bytes() const override;
  Status set_pointers(std::span<void* const> addresses, const Scratch& scratch) override;
  Status run() override;

 private:
  SmeGemm(const Graph& graph, const LinearNodes& nodes, const SmeKernels& kernels,
          ProgramState& state);
  size_t panels() const;
  const std::byte* panel(size_t index) const;
  // Of a thread's scratch: pointers to the segments of a block's rows; these rows follow, packed.
  size_t pointer_bytes() const;
  std::byte* packed_of(size_t thread) const;
  const std::byte* read(const std::byte* image) const;
  SmeRow row_of(const std::byte* image, size_t row) const;
  bool is_row_finite(const SmeRow& row) const;
  void pack(const std::byte* image, size_t first, size_t count, size_t thread) const;
  // What is added to results, the first of which is number `at`.
  void add_residual(size_t at, size_t rows, size_t columns) const;
  void run_block(const std::byte* image, size_t rows_before, size_t item, size_t thread) const;

  const LinearNodes nodes_;
  const bool is_convolution_;
  const Window window_;
  ConvolutionImage image_;
  FusedKernelWeights weights_;  // panel by panel
  SmeFinish finish_;            // before a residual is added
  int8_t zero_ = 0;             // around an image, of 8-bit integers
  size_t depth_ = 0, columns_ = 0;
  size_t segments_ = 1, length_ = 0;  // of which the depth consists
  size_t segment_stride_ = 0;
  // Of results: images, rows of each, and those that lie column_stride_ apart in what they read.
  size_t images_ = 1, rows_ = 0, image_rows_ = 1;
  size_t row_stride_ = 0, column_stride_ = 0;
  size_t block_ = 0;   // rows that a thread packs and multiplies at a time
  size_t shares_ = 1;  // of a block's columns, for threads
  const std::byte* input_ = nullptr;
  const float* residual_ = nullptr;
  std::byte* output_ = nullptr;
  Scratch scratch_;
};

}  // namespace edgewise::xnnpack
