#include "backends/xnnpack/steps/panels.h"

#include <algorithm>

#include "backends/xnnpack/steps/parallel.h"

namespace edgewise::xnnpack {

size_t padded_columns(const FloatKernels& kernels, size_t columns) {
  return divide_up(columns, kernels.columns) * kernels.columns;
}

void pack_panels(const FloatKernels& kernels, const float* from, size_t depth, size_t columns,
                 size_t row_stride, size_t column_stride, float* packed) {
  for (size_t first = 0; first < columns; first += kernels.columns) {
    const size_t count = std::min(kernels.columns, columns - first);
    for (size_t p = 0; p < depth; ++p, packed += kernels.columns) {
      const float* row = from + p * row_stride + first * column_stride;
      for (size_t j = 0; j < count; ++j) packed[j] = row[j * column_stride];
      std::fill(packed + count, packed + kernels.columns, 0.0f);
    }
  }
}

}  // namespace edgewise::xnnpack
