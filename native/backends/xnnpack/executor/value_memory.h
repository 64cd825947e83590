// Memory planning: offsets, in one block, of the values that steps pass to each other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace edgewise::xnnpack {

struct Lifetime {
  uint32_t value = 0;
  size_t bytes = 0;
  size_t first = 0;  // step that writes it
  size_t last = 0;   // last step that reads it
  size_t offset = 0;
  // Values, by index, whose last reader is the step that writes this one. It can lie where one of
  // them does if they have the same size.
  std::vector<size_t> may_replace = {};
};

// Sets offsets, aligned, such that values that live at the same time do not overlap. Gives the
// bytes of the whole, kReadPadding after each value included.
size_t assign_offsets(std::vector<Lifetime>* values);

}  // namespace edgewise::xnnpack
