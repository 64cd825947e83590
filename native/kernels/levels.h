// What sources that are compiled once, for any CPU, have of the best level: the copy of
// elements, which is where they spend their time.
#pragma once

#include "target.h"

namespace edgewise {

// Registers a table whatever this CPU's level is.
inline constexpr int kEveryLevel = -1;

// A view without the types of a level.
struct ViewParts {
  std::byte* data;
  ScalarType type;
  std::span<const int64_t> sizes, strides;
};
using AssignParts = Status (*)(const ViewParts& target, const ViewParts& source);

// assign() of a level above the lowest, if it is this CPU's; else null. A level gives its own by
// a static object.
AssignParts best_assign();
struct AssignOfLevel {
  AssignOfLevel(int level, AssignParts assign);
};

}  // namespace edgewise
