// CPU dispatch. Kernels are compiled for several of Highway's targets (target.h), and the best that
// this CPU has is registered. Sources that are compiled once, for any CPU, have of the best target
// the copy of elements, which is where they spend their time.
#pragma once

#include "core/cpu_level.h"
#include "target.h"

namespace edgewise {

// Registers a table whatever this CPU's target is.
inline constexpr int64_t kEveryLevel = 0;

// A view without the types of a target.
struct ViewParts {
  std::byte* data;
  ScalarType type;
  std::span<const int64_t> sizes, strides;
};
using AssignParts = Status (*)(const ViewParts& target, const ViewParts& source);

// assign() of kernel_target(), if it is not the one that any CPU has; else null. A target gives
// its own by a static object.
AssignParts best_assign();
struct AssignOfTarget {
  AssignOfTarget(int64_t target, AssignParts assign);
};

// For tests, which run with limit_cpu() what CPUs below this one would: those of cpu_levels() that
// differ in kernels, and kernel_target()'s entry for a kernel (null if it has none).
std::vector<CpuLevel> kernel_levels();
const KernelEntry* find_kernel_of_target(std::string_view name);

}  // namespace edgewise
