#pragma once

#include "edgewise/status.h"
#include "edgewise/tensor.h"

namespace edgewise {

// Copies the elements of `source` to `target`, each in its own dim_order. Types and sizes
// must be equal. The two may overlap.
Status copy_elements(const Tensor& source, Tensor& target);

// Whether both orders put elements of these sizes at the same offsets: dimensions of
// size 1 lie anywhere.
bool same_layout(const Tensor& a, const Tensor& b);

}  // namespace edgewise
