// The scratch memory of one step, with nothing valid in it.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "backends/xnnpack/executor/step.h"

namespace edgewise::xnnpack {

class ScratchMemory {
 public:
  ScratchMemory(const Step& step, size_t threads)
      : shared_(floats(step.scratch_bytes())),
        stride_(floats(step.thread_scratch_bytes()) + kAround),
        memory_(shared_ + kAround + threads * stride_, std::numeric_limits<float>::quiet_NaN()) {}

  operator Scratch() {
    auto* bytes = reinterpret_cast<std::byte*>(memory_.data());
    return {bytes, bytes + (shared_ + kAround) * sizeof(float), stride_ * sizeof(float)};
  }

  // Whether nothing was written behind what the step asked for.
  bool is_kept() const {
    for (size_t end = shared_ + kAround; end <= memory_.size(); end += stride_) {
      const auto is_nan = [](float x) { return std::isnan(x); };
      if (!std::all_of(&memory_[end - kAround], memory_.data() + end, is_nan)) return false;
    }
    return true;
  }

 private:
  static constexpr size_t kAround = 64;
  static size_t floats(size_t bytes) { return (bytes + sizeof(float) - 1) / sizeof(float); }

  size_t shared_, stride_;
  std::vector<float> memory_;
};

}  // namespace edgewise::xnnpack
