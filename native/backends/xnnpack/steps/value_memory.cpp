#include "backends/xnnpack/steps/value_memory.h"

#include <algorithm>

#include "edgewise/tensor.h"

namespace edgewise::xnnpack {
namespace {

size_t room(const Lifetime& value) {
  return (value.bytes + kReadPadding + kBufferAlignment - 1) / kBufferAlignment * kBufferAlignment;
}

}  // namespace

// The largest first, each as low as it fits.
size_t place(std::vector<Lifetime>* values) {
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
      if (value->offset + room(*value) <= other->offset) break;
      value->offset = std::max(value->offset, other->offset + room(*other));
    }
    total = std::max(total, value->offset + room(*value));
    placed.insert(
        std::upper_bound(placed.begin(), placed.end(), value,
                         [](const auto* a, const auto* b) { return a->offset < b->offset; }),
        value);
  }
  return total;
}

}  // namespace edgewise::xnnpack
