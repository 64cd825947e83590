// A value that is quantized when the program runs: its elements, and behind them a scale and zero
// point for each row.
#pragma once

#include <cstddef>

#include "backends/xnnpack/graph.h"
#include "core/memory.h"
#include "xnnpack.h"

namespace edgewise::xnnpack {

// Kernels work on up to 16 rows at once. Of rows that are not there they read the parameters, too,
// and then compute the last one once more: these must be equal to its.
inline constexpr size_t kRowsBehind = 16;

// What one set of parameters is for: all but the last `nonbatch_dims` sizes.
inline size_t quantized_rows(const GraphValue& value, const Shape& shape) {
  return shape.leading(shape.rank - value.nonbatch_dims);
}

// From the elements to the parameters.
inline size_t params_offset(const GraphValue& value, const Shape& shape) {
  return padded_size(byte_size(value.type, shape));
}

// Of the elements of any value and, if it has some, the parameters and those behind.
inline size_t value_bytes(const GraphValue& value, const Shape& shape) {
  if (value.type != DataType::kQdint8) return byte_size(value.type, shape);
  return params_offset(value, shape) +
         (quantized_rows(value, shape) + kRowsBehind) * sizeof(xnn_quantization_params);
}

}  // namespace edgewise::xnnpack
