#include "target.h"

#include "cpu_dispatch.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace edgewise {
namespace {

#if defined(__x86_64__) && EDGEWISE_HIGHEST_LEVEL >= 3
// Clang before 15 does not know the name in __builtin_cpu_supports.
bool has_f16c() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}
#endif

int best_level() {
#if defined(__x86_64__) && EDGEWISE_HIGHEST_LEVEL >= 3
  __builtin_cpu_init();
  // The features of the level that the compiler is told to use. It also asks whether the
  // system saves the wider registers.
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c() &&
      __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2") &&
      __builtin_cpu_supports("popcnt")) {
    return 3;
  }
#endif
  return 0;
}

AssignParts held_assign = nullptr;
const KernelTable* tables = nullptr;
int level_limit = kWideLevel;

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
  return found && level_limit >= kWideLevel;
}
#endif

KernelTable::KernelTable(int level, std::span<const KernelEntry> entries)
    : level_(level), entries_(entries), next_(tables) {
  tables = this;
  if (level != kEveryLevel && level != kernel_level()) return;
  for (const KernelEntry& entry : entries) {
    const KernelRegistration registered(entry.name, entry.argument_count, entry.function);
  }
}

AssignParts best_assign() { return level_limit >= kernel_level() ? held_assign : nullptr; }

AssignOfLevel::AssignOfLevel(int level, AssignParts assign) {
  if (level == kernel_level()) held_assign = assign;
}

std::vector<int> kernel_levels() {
  std::vector<int> levels{0};
  if (kernel_level() > 0) levels.push_back(kernel_level());
#if defined(__x86_64__) && EDGEWISE_HIGHEST_LEVEL >= 3
  if (kernel_level() > 0 && has_wide()) levels.push_back(kWideLevel);
#endif
  return levels;
}

const KernelEntry* find_kernel_of_level(int level, std::string_view name) {
  for (const KernelTable* table = tables; table != nullptr; table = table->next_) {
    if (table->level_ != kEveryLevel && table->level_ != std::min(level, kernel_level())) continue;
    const auto entry = std::ranges::find(table->entries_, name, &KernelEntry::name);
    if (entry != table->entries_.end()) return &*entry;
  }
  return nullptr;
}

void limit_kernel_level(int level) { level_limit = level; }

}  // namespace edgewise
