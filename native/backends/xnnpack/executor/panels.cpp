#include "backends/xnnpack/executor/panels.h"

#include <algorithm>

#include "backends/xnnpack/executor/parallel.h"

namespace edgewise::xnnpack {

size_t padded_columns(const FloatKernels& kernels, size_t columns) {
  return divide_up(columns, kernels.columns) * kernels.columns;
}

bool fills_columns(const FloatKernels& kernels, size_t columns) {
  const size_t at_once = kernels.gemm_limits.columns;
  return divide_up(columns, at_once) * at_once * 8 <= columns * 9;
}

const char* gemm_sizes_rule(const FloatKernels& kernels, size_t rows, size_t depth, size_t columns,
                            bool has_residual) {
  const GemmLimits& least = kernels.gemm_limits;
  if (!kernels.gemm_pays) return "cores that start instructions out of order";
  if (!fills_columns(kernels, columns)) {
    return "columns that fill the kernel's vectors to eight ninths";
  }
  const bool is_shallow = depth < least.depth && !has_residual;
  const bool is_small = rows < least.rows || rows * depth * columns < least.products;
  return is_shallow || is_small ? least.rule : nullptr;
}

void pack_panels(const FloatKernels& kernels, const float* from, size_t depth, size_t columns,
                 size_t row_stride, size_t column_stride, float* packed, pthreadpool_t threads) {
  parallel_for(threads, divide_up(columns, kernels.columns), [&](size_t panel, size_t) {
    const size_t first = panel * kernels.columns;
    const size_t count = std::min(kernels.columns, columns - first);
    const float* source = from + first * column_stride;
    float* to = packed + first * depth;
    if (row_stride == 1) {
      kernels.transpose(source, column_stride, count, depth, to, kernels.columns);
    } else {
      for (size_t p = 0; p < depth; ++p) {
        const float* row = source + p * row_stride;
        if (column_stride == 1) {
          std::copy_n(row, count, to + p * kernels.columns);
          continue;
        }
        for (size_t j = 0; j < count; ++j) to[p * kernels.columns + j] = row[j * column_stride];
      }
    }
    if (count == kernels.columns) return;
    for (size_t p = 0; p < depth; ++p) {
      std::fill(to + p * kernels.columns + count, to + (p + 1) * kernels.columns, 0.0f);
    }
  });
}

}  // namespace edgewise::xnnpack
