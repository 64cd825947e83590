#include "target.h"

#include "cpu_dispatch.h"

namespace edgewise {
namespace {

AssignParts held_assign = nullptr;
const KernelTable* tables = nullptr;

int64_t target_of(const CpuLevel& level) {
#ifdef EDGEWISE_KERNELS_FOR_AVX2
  if (level.target <= HWY_AVX2 && HWY_STATIC_TARGET > HWY_AVX2) return HWY_AVX2;
#endif
  (void)level;
  return HWY_STATIC_TARGET;
}

#ifdef EDGEWISE_KERNELS_FOR_AVX2
bool is_wide(const CpuLevel& level) { return level.target <= HWY_AVX3; }
#else
bool is_wide(const CpuLevel&) { return false; }
#endif

// Of this CPU, whatever tests limit it to later.
int64_t registered_target() {
  static const int64_t target = kernel_target();
  return target;
}

}  // namespace

int64_t kernel_target() { return target_of(cpu_level()); }

bool has_wide() { return is_wide(cpu_level()); }

KernelTable::KernelTable(int64_t target, std::span<const KernelEntry> entries)
    : target_(target), entries_(entries), next_(tables) {
  tables = this;
  if (target != kEveryLevel && target != registered_target()) return;
  for (const KernelEntry& entry : entries) {
    const KernelRegistration registered(entry.name, entry.argument_count, entry.function);
  }
}

AssignParts best_assign() { return kernel_target() == registered_target() ? held_assign : nullptr; }

AssignOfTarget::AssignOfTarget(int64_t target, AssignParts assign) {
  if (target == registered_target()) held_assign = assign;
}

std::vector<CpuLevel> kernel_levels() {
  std::vector<CpuLevel> levels;
  for (const CpuLevel& level : cpu_levels()) {
    const bool is_new = levels.empty() || target_of(level) != target_of(levels.back()) ||
                        is_wide(level) != is_wide(levels.back());
    if (is_new) levels.push_back(level);
  }
  return levels;
}

const KernelEntry* find_kernel_of_target(std::string_view name) {
  for (const KernelTable* table = tables; table != nullptr; table = table->next_) {
    if (table->target_ != kEveryLevel && table->target_ != kernel_target()) continue;
    const auto entry = std::ranges::find(table->entries_, name, &KernelEntry::name);
    if (entry != table->entries_.end()) return &*entry;
  }
  return nullptr;
}

}  // namespace edgewise
