// What a delegate runs, in which order and by which kernel, and why not by another.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace edgewise {

struct DelegateOperation {
  std::string operation;        // kinds of its nodes: "Conv2d + Add"
  std::string sizes;            // types and shapes: "fp32[1, 8, 8, 32] -> fp32[1, 8, 8, 16]"
  std::string kernel;           // as in a profile
  std::vector<uint32_t> nodes;  // of the delegate's payload, by position
  // Kernels that come before it for such an operation, and what each asks for that it has not.
  std::vector<std::pair<std::string, std::string>> refused;
};

}  // namespace edgewise
