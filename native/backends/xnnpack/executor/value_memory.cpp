#include "backends/xnnpack/executor/value_memory.h"

#include <algorithm>

#include "core/memory.h"

namespace edgewise::xnnpack {

namespace {

constexpr size_t kItself = SIZE_MAX;

// For each value the one whose memory it takes over. Nobody else may have taken it.
std::vector<size_t> find_replaced(const std::vector<Lifetime>& values) {
  std::vector<size_t> result(values.size(), kItself);
  std::vector<bool> is_taken(values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    for (const size_t other : values[i].may_replace) {
      if (is_taken[other] || values[other].bytes != values[i].bytes) continue;
      is_taken[other] = true;
      result[i] = other;
      break;
    }
  }
  return result;
}

}  // namespace

// The largest first, each as low as it fits.
size_t assign_offsets(std::vector<Lifetime>* values) {
  // A chain of values that replace each other is one block, which lives as long as all of them.
  const std::vector<size_t> replaced = find_replaced(*values);
  std::vector<size_t> block(values->size());
  std::vector<Lifetime> blocks;
  for (size_t i = 0; i < values->size(); ++i) {
    const Lifetime& value = (*values)[i];
    if (replaced[i] == kItself) {
      block[i] = blocks.size();
      blocks.push_back({.bytes = value.bytes, .first = value.first, .last = value.last});
    } else {
      block[i] = block[replaced[i]];
      blocks[block[i]].last = value.last;
    }
  }
  std::vector<Lifetime*> order;
  for (Lifetime& value : blocks) order.push_back(&value);
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
  for (size_t i = 0; i < values->size(); ++i) (*values)[i].offset = blocks[block[i]].offset;
  return total;
}

}  // namespace edgewise::xnnpack
