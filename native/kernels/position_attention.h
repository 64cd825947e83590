// Attention of one position to a cache: a query of each head, and all keys that are filled in.
#pragma once

#include <cstddef>
#include <cstdint>

#include "edgewise/scalar_type.h"
#include "edgewise/status.h"
#include "edgewise/workers.h"

namespace edgewise {

struct PositionAttention {
  const float* queries = nullptr;              // [heads, depth]
  ScalarType cache_type = ScalarType::kFloat;  // or kHalf
  const std::byte* keys = nullptr;             // [filled, key heads, depth]
  const std::byte* values = nullptr;           // likewise
  const float* mask = nullptr;  // [filled], added to each head's products; null: none
  int64_t heads = 0;            // a multiple of key_heads
  int64_t key_heads = 0;
  int64_t depth = 0;  // can_attend_heads()
  int64_t filled = 0;
  float scale = 1;
  float* out = nullptr;  // [heads, depth]
};

// The result does not depend on the number of threads. `workers`: null for none.
Status attend_position(const PositionAttention& attention, Workers* workers);

}  // namespace edgewise
