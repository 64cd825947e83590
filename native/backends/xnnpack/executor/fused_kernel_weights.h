// Weights in the form that a fused kernel reads, packed when it is made.
#pragma once

#include <functional>
#include <initializer_list>
#include <string>

#include "backends/xnnpack/constant_data.h"
#include "backends/xnnpack/program_state.h"

namespace edgewise::xnnpack {

// What packed weights depend on beside constants: `layout`, whose kernels, and sizes, in one text.
std::string weights_form(const char* layout, const char* kernels,
                         std::initializer_list<size_t> sizes);

class FusedKernelWeights {
 public:
  // `filter` and `bias` (kNone: zeros) are constants of `graph` in fp32, or become that. `pack`
  // writes `count` floats from their data; bias may be null. Packed weights are shared by the
  // delegates of a program if both constants are named data and `form`, which says all else that
  // the result depends on, is the same. Empty: not to be shared. Of a filter that is read as it is
  // stored, `pack` gets null: it is not converted for it.
  enum class Filter : uint8_t { kConverted, kAsStored };
  using Pack = std::function<void(const float* filter, const float* bias, float* packed)>;
  static Result<FusedKernelWeights> make(const Graph& graph, uint32_t filter, uint32_t bias,
                                         size_t count, const std::string& form, ProgramState& state,
                                         const Pack& pack, Filter reads = Filter::kConverted);

  const float* data() const { return data_; }

 private:
  const float* data_ = nullptr;
  PackedWeights::Buffer own_;
};

}  // namespace edgewise::xnnpack
