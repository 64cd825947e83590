// Fully connected nodes and 1x1 convolutions: a matrix product with constant weights.
#pragma once

#include <memory>

#include "backends/xnnpack/steps/products.h"
#include "backends/xnnpack/steps/step.h"

namespace edgewise::xnnpack {

// Whether such a step can run `nodes`, and is faster than XNNPACK.
bool suits_product(const Graph& graph, const std::vector<Shape>& shapes, const LinearNodes& nodes,
                   const FloatKernels& kernels);

class ProductStep final : public Step {
 public:
  // `nodes` must suit it, or at least be nodes that it can run. `state` must outlive it.
  static Result<std::unique_ptr<Step>> make(const Graph& graph, const LinearNodes& nodes,
                                            const FloatKernels& kernels, ProgramState& state);

  const std::vector<uint32_t>& reads() const override { return reads_; }
  const std::vector<uint32_t>& writes() const override { return writes_; }
  Status reshape(const std::vector<Shape>& shapes) override;
  Status set_pointers(std::span<void* const> addresses, std::byte* scratch) override;
  Status run() override;
  std::vector<ProfilePart> parts() const override {
    return {
        {.name = std::string("edgewise Product ") + kernels_.name, .nodes = {}, .counters = {}}};
  }

 private:
  ProductStep(const FloatKernels& kernels, pthreadpool_t threads)
      : kernels_(kernels), threads_(threads) {}

  const FloatKernels& kernels_;
  pthreadpool_t threads_;
  LinearNodes nodes_;
  std::vector<uint32_t> reads_;
  std::vector<uint32_t> writes_;
  PackedProduct product_;
  size_t rows_ = 0;
  const float* input_ = nullptr;
  const float* residual_ = nullptr;
  float* output_ = nullptr;
};

}  // namespace edgewise::xnnpack
