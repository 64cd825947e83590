#include "target.h"

#include "levels.h"

namespace edgewise {
namespace {

int best_level() {
#if defined(__x86_64__) && EDGEWISE_HIGHEST_LEVEL >= 3
  __builtin_cpu_init();
  // The features of the level that the compiler is told to use. It also asks whether the
  // system saves the wider registers.
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
      __builtin_cpu_supports("f16c") && __builtin_cpu_supports("bmi") &&
      __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("popcnt")) {
    return 3;
  }
#endif
  return 0;
}

AssignParts held_assign = nullptr;

}  // namespace

int kernel_level() {
  static const int level = best_level();
  return level;
}

#if defined(__x86_64__) && EDGEWISE_HIGHEST_LEVEL >= 3
bool has_wide() {
  static const bool found =
      __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
  return found;
}
#endif

KernelTable::KernelTable(int level, std::span<const KernelEntry> entries) {
  if (level != kEveryLevel && level != kernel_level()) return;
  for (const KernelEntry& entry : entries) {
    const KernelRegistration registered(entry.name, entry.argument_count, entry.function);
  }
}

AssignParts best_assign() { return held_assign; }

AssignOfLevel::AssignOfLevel(int level, AssignParts assign) {
  if (level == kernel_level()) held_assign = assign;
}

}  // namespace edgewise
