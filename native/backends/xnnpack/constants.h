// Where a payload's constants are.
#pragma once

#include <cstdint>

#include "backends/xnnpack/graph.h"
#include "backends/xnnpack/payload.h"
#include "edgewise/backend.h"

namespace edgewise::xnnpack {

// Entry `index` of the payload's constants, which must not be 0. `named_data` may be null if no
// constant is named.
Result<Constant> find_constant(const Payload& payload, const NamedData* named_data, uint32_t index);

}  // namespace edgewise::xnnpack
