// CPU dispatch. Kernels are compiled for several levels of vector instructions (target.h), and the
// best that this CPU has is registered. Sources that are compiled once, for any CPU, have of the
// best level the copy of elements, which is where they spend their time.
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

// For tests, which run what CPUs below this one would: the levels that this CPU has, the lowest
// first (kWideLevel: level 3 with AVX-512), a level's entry for a kernel (null if it has none),
// and the level up to which kernels call each other.
inline constexpr int kWideLevel = 4;
std::vector<int> kernel_levels();
const KernelEntry* find_kernel_of_level(int level, std::string_view name);
void limit_kernel_level(int level);

}  // namespace edgewise
