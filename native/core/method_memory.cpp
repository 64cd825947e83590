#include "method_memory.h"

#include <algorithm>
#include <tuple>

#include "checked.h"

namespace edgewise {

Result<MethodMemory> MethodMemory::allocate(const MethodPlan& plan,
                                            std::shared_ptr<Session> session) {
  MethodMemory memory;
  std::vector<size_t> offsets;
  size_t total = 0;
  for (size_t arena = 0; arena < plan.arenas.size(); ++arena) {
    offsets.push_back(total);
    if (plan.shared_arenas[arena]) continue;
    // Cannot overflow as kMaxPlannedBytes was checked; said again where it matters.
    if (!checked_add(total, plan.arenas[arena], &total) ||
        !checked_add(total, kReadPadding, &total) || !align_up(total, kBufferAlignment, &total)) {
      return error(Code::kInvalidProgram, "the planned memory is too large");
    }
  }
  Result<MemoryBlock> block = MemoryBlock::allocate(total);
  if (!block) return block.status();
  memory.block_ = std::move(*block);
  memory.session_ = std::move(session);
  for (size_t arena = 0; arena < plan.arenas.size(); ++arena) {
    memory.begins_.push_back(plan.shared_arenas[arena] ? memory.session_->arena(arena)
                                                       : memory.block_.data() + offsets[arena]);
  }
  return memory;
}

void MethodMemory::clear() {
  block_.clear();
  if (session_ != nullptr) session_->reset();
}

std::vector<bool> find_exclusive(const MethodPlan& plan) {
  struct Region {
    uint32_t arena;
    size_t begin;
    size_t end;
    uint32_t value;
  };
  std::vector<Region> regions;
  for (uint32_t i = 0; i < plan.values.size(); ++i) {
    const TensorPlan* tensor = plan.tensor(i);
    if (tensor == nullptr || tensor->storage != TensorPlan::Storage::kPlanned) continue;
    regions.push_back({tensor->arena, tensor->offset, tensor->offset + tensor->nbytes, i});
  }
  std::ranges::sort(regions, [](const Region& a, const Region& b) {
    return std::tie(a.arena, a.begin, a.end) < std::tie(b.arena, b.begin, b.end);
  });
  std::vector<bool> exclusive(plan.values.size(), false);
  size_t reached = 0;  // end of what lies before, in this arena
  for (size_t i = 0; i < regions.size(); ++i) {
    const Region& region = regions[i];
    if (i == 0 || regions[i - 1].arena != region.arena) reached = 0;
    const bool before = reached > region.begin;
    const bool after = i + 1 < regions.size() && regions[i + 1].arena == region.arena &&
                       regions[i + 1].begin < region.end;
    exclusive[region.value] = !before && !after;
    reached = std::max(reached, region.end);
  }
  return exclusive;
}

bool is_planned_alone(const MethodPlan& plan, uint32_t value) {
  const TensorPlan* tensor = plan.tensor(value);
  return tensor != nullptr && tensor->storage == TensorPlan::Storage::kPlanned &&
         !tensor->has_initial() && !plan.shared_arenas[tensor->arena];
}

bool shares_memory(const MethodPlan& plan, uint32_t a, uint32_t b) {
  const TensorPlan* first = plan.tensor(a);
  const TensorPlan* second = plan.tensor(b);
  return first != nullptr && second != nullptr && first->storage == TensorPlan::Storage::kPlanned &&
         second->storage == TensorPlan::Storage::kPlanned && first->arena == second->arena &&
         first->offset < second->offset + second->nbytes &&
         second->offset < first->offset + first->nbytes;
}

}  // namespace edgewise
