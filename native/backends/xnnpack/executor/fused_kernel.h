// A fused kernel: a step that computes several nodes at once, faster than XNNPACK one by one. What
// all of them have.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "backends/xnnpack/executor/float_kernels.h"
#include "backends/xnnpack/executor/step.h"
#include "backends/xnnpack/program_state.h"

namespace edgewise::xnnpack {

template <typename Kernels>
class FusedKernelOf : public Step {
 public:
  const std::vector<uint32_t>& reads() const final { return reads_; }
  const std::vector<uint32_t>& writes() const final { return writes_; }
  std::string name() const final {
    std::string result = "edgewise ";
    return result.append(name_).append(" ").append(kernels_.name);
  }

 protected:
  // `reads`: values, or kNone. `kernels` and `state` must outlive it.
  FusedKernelOf(const char* name, const Kernels& kernels, ProgramState& state,
                std::vector<uint32_t> reads, std::vector<uint32_t> writes)
      : kernels_(kernels),
        threads_(state.threadpool()),
        name_(name),
        reads_(std::move(reads)),
        writes_(std::move(writes)) {
    std::erase(reads_, kNone);
  }

  const Kernels& kernels_;
  const pthreadpool_t threads_;

 private:
  const char* name_;
  std::vector<uint32_t> reads_;
  std::vector<uint32_t> writes_;
};

using FusedKernel = FusedKernelOf<FloatKernels>;

}  // namespace edgewise::xnnpack
