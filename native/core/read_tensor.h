// Reads a tensor of the value table.
#pragma once

#include "method_plan.h"

namespace edgewise {

// `arenas` as the file gives them. The offset of tensors that the file does not plan is
// left to the caller: arena 0, offset 0.
Result<TensorPlan> read_tensor(const PteFile& file, const fb::Tensor& source,
                               std::span<const size_t> arenas, ItemBudget& budget);

}  // namespace edgewise
