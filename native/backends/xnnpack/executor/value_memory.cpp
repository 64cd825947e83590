#include "backends/xnnpack/executor/value_memory.h"

#include <algorithm>

#include "core/memory.h"

namespace edgewise::xnnpack {

// The largest first, each as low as it fits.
size_t assign_offsets(std::vector<Lifetime>* values) {
  std::vector<Lifetime*> order;
  for (Lifetime& value : *values) order.push_back(&value);
  std::stable_sort(order.begin(), order.end(),
                   [](const auto* a, const auto* b) { return a->bytes > b->bytes; });
  std::vector<Lifetime*> placed;  // by offset
  size_t total = 0;
  for (Lifetime* value : order) {
    value->offset = 0;
    for (const Lifetime* other : placed) {
      if (other->last < value->first || value->last < other->first) continue;
      if (value->offset + padded_size(value->bytes) <= other->offset) break;
      value->offset = std::max(value->offset, other->offset + padded_size(other->bytes));
    }
    total = std::max(total, value->offset + padded_size(value->bytes));
    placed.insert(
        std::upper_bound(placed.begin(), placed.end(), value,
                         [](const auto* a, const auto* b) { return a->offset < b->offset; }),
        value);
  }
  return total;
}

}  // namespace edgewise::xnnpack
