#include "session.h"

#include <algorithm>

#include "method_memory.h"

namespace edgewise {

namespace {

constexpr size_t kFirstShared = 2;

bool holds_state(const MethodPlan& method, size_t arena) {
  const std::vector<bool> exclusive = find_exclusive(method);
  for (uint32_t i = 0; i < method.values.size(); ++i) {
    const TensorPlan* tensor = method.tensor(i);
    if (tensor == nullptr || tensor->storage != TensorPlan::Storage::kPlanned ||
        tensor->arena != arena) {
      continue;
    }
    if (!exclusive[i] || std::ranges::count(method.inputs, i) != 0) return false;
  }
  return true;
}

}  // namespace

void find_shared_arenas(std::vector<MethodPlan>& methods) {
  size_t arenas = 0;
  for (MethodPlan& method : methods) {
    method.shared_arenas.assign(method.arenas.size(), false);
    arenas = std::max(arenas, method.arenas.size());
  }
  for (size_t arena = kFirstShared; arena < arenas; ++arena) {
    const MethodPlan* first = nullptr;
    const bool shared = std::ranges::all_of(methods, [&](const MethodPlan& method) {
      if (method.arenas.size() <= arena) return true;
      if (first == nullptr) first = &method;
      return method.arenas[arena] == first->arenas[arena] && holds_state(method, arena);
    });
    for (MethodPlan& method : methods) {
      if (method.arenas.size() > arena) method.shared_arenas[arena] = shared;
    }
  }
}

Result<std::shared_ptr<Session>> Session::create(const Program* program,
                                                 std::span<const MethodPlan> methods) {
  auto session = std::make_shared<Session>();
  session->program_ = program;
  session->methods_ = methods;
  for (const MethodPlan& method : methods) {
    for (size_t arena = 0; arena < method.arenas.size(); ++arena) {
      if (!method.shared_arenas[arena] || session->arenas_.contains(arena)) continue;
      Result<MemoryBlock> block = MemoryBlock::allocate(method.arenas[arena]);
      if (!block) return block.status().within("session");
      session->arenas_.emplace(arena, std::move(*block));
    }
  }
  session->reset();
  return session;
}

std::byte* Session::arena(size_t index) const {
  const auto found = arenas_.find(index);
  return found == arenas_.end() ? nullptr : found->second.data();
}

void Session::reset() {
  for (auto& [index, block] : arenas_) block.clear();
  for (const MethodPlan& method : methods_) {
    for (uint32_t i = 0; i < method.values.size(); ++i) {
      const TensorPlan* tensor = method.tensor(i);
      if (tensor == nullptr || tensor->storage != TensorPlan::Storage::kPlanned) continue;
      std::byte* begin = arena(tensor->arena);
      if (begin == nullptr) continue;
      std::ranges::copy(tensor->initial, begin + tensor->offset);
    }
  }
}

}  // namespace edgewise
