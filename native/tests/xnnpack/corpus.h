// The programs from which fuzzing starts, as inputs of tests: each kind of thing that a file has.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "edgewise/program.h"

namespace edgewise::test {

using Outputs = std::vector<std::vector<std::byte>>;

inline std::vector<std::string> corpus_files() {
  std::vector<std::string> found;
  for (const auto& entry : std::filesystem::directory_iterator(EDGEWISE_CORPUS)) {
    // Its weights are in another file.
    if (entry.path().stem() != "portable_external") found.push_back(entry.path().string());
  }
  std::sort(found.begin(), found.end());
  return found;
}

// Runs a method with ones, from the state in which it begins, and takes the outputs that are
// tensors.
inline Status run_with_ones(Method& method, RunProfile* profile, Outputs& outputs) {
  EDGEWISE_RETURN_IF_ERROR(method.reset());
  std::vector<std::vector<std::byte>> memory;
  for (size_t i = 0; i < method.info().inputs.size(); ++i) {
    const ValueInfo& input = method.info().inputs[i];
    auto& bytes = memory.emplace_back(input.nbytes);
    const size_t width = element_size(input.type);
    for (size_t at = 0; at < bytes.size(); at += width) {
      const float one = 1;
      if (input.type == ScalarType::kFloat) {
        std::memcpy(bytes.data() + at, &one, width);
      } else {
        bytes[at] = std::byte{1};
      }
    }
    const auto tensor = Tensor::make(input.type, input.sizes, input.dim_order, bytes.data(),
                                     bytes.size(), Dynamism::kStatic);
    if (!tensor) return tensor.status();
    EDGEWISE_RETURN_IF_ERROR(method.set_input(i, Value(*tensor)));
  }
  EDGEWISE_RETURN_IF_ERROR(method.execute(profile));
  outputs.clear();
  for (size_t i = 0; i < method.info().outputs.size(); ++i) {
    const Tensor* tensor = method.output(i)->get<Tensor>();
    if (tensor == nullptr) continue;
    const auto* data = tensor->data<std::byte>();
    outputs.emplace_back(data, data + tensor->nbytes());
  }
  return Status::ok_status();
}

}  // namespace edgewise::test
