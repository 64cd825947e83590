// Right factors of GEMMs, packed into the panels that the kernels read.
#pragma once

#include <cstddef>

#include "backends/xnnpack/executor/float_kernels.h"
#include "pthreadpool.h"

namespace edgewise::xnnpack {

// Columns with those that fill up the last panel.
size_t padded_columns(const FloatKernels& kernels, size_t columns);

// Whether at most an eighth of the computed columns is for nothing.
bool fills_columns(const FloatKernels& kernels, size_t columns);

// Null if a GEMM of these sizes was measured to be faster than XNNPACK's; else what it asks for.
const char* gemm_sizes_rule(const FloatKernels& kernels, size_t rows, size_t depth, size_t columns,
                            bool has_residual);

// Packs a matrix of depth x columns, whose element (p, j) is from[p * row_stride + j *
// column_stride], panel by panel; missing columns are zero. `packed` gets
// depth * padded_columns floats. `threads` may be null.
void pack_panels(const FloatKernels& kernels, const float* from, size_t depth, size_t columns,
                 size_t row_stride, size_t column_stride, float* packed, pthreadpool_t threads);

}  // namespace edgewise::xnnpack
