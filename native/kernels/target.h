// The kernels are compiled once for each of some of Highway's targets, each in its namespace, and
// those of the best target that this CPU has are registered. Their loops are turned into vectors by
// the compiler, which is why they are files compiled again and not loops of Highway's vectors.
// What is included here is compiled for any CPU: a header of the standard library must not be met
// first below the pragma of a target, since its inline functions are shared by all targets.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <limits>
#include <memory>
#include <new>
#include <numbers>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/simd_targets.h"
#include "hwy/base.h"
#include "hwy/detect_targets.h"

#include "edgewise/kernel.h"
#include "edgewise/scalar_type.h"
#include "edgewise/status.h"
#include "edgewise/tensor.h"
#include "edgewise/value.h"
#ifdef EDGEWISE_SELECTED_KERNELS
#include "selected_kernels.h"
#endif

// The files that CMake makes for a further target name it.
#undef HWY_TARGET
#ifdef EDGEWISE_TARGET
#define HWY_TARGET EDGEWISE_TARGET
#else
#define HWY_TARGET HWY_STATIC_TARGET
#endif
#include "hwy/ops/set_macros-inl.h"
#define EDGEWISE_HAS_AVX2 (HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2)

// Before a loop whose iterations may run in any order, or at once.
#if defined(__clang__)
#define EDGEWISE_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define EDGEWISE_INDEPENDENT _Pragma("GCC ivdep")
#endif

namespace edgewise {

// The best of the targets built into this library that this CPU, or EDGEWISE_CPU, allows.
int64_t kernel_target();

#if EDGEWISE_HAS_AVX2
// Also AVX-512, for functions that ask: they have EDGEWISE_WIDE, their vectors 64 bytes.
#define EDGEWISE_WIDE gnu::target(HWY_TARGET_STR_AVX3)
bool has_wide();
#endif

struct KernelEntry {
  const char* name;
  size_t argument_count;
  KernelFunction function;
};

#ifdef EDGEWISE_SELECTED_KERNELS
// Whether the program needs the kernel: kSelectedKernels are the names that a build for it lists
// (`edgewise link`).
constexpr bool is_selected(std::string_view name) {
  return std::ranges::find(kSelectedKernels, name) != std::end(kSelectedKernels);
}
template <const auto& kEntries>
constexpr auto select_kernels() {
  constexpr auto count = std::ranges::count_if(
      kEntries, [](const KernelEntry& entry) { return is_selected(entry.name); });
  std::array<KernelEntry, count> found{};
  std::ranges::copy_if(kEntries, found.begin(),
                       [](const KernelEntry& entry) { return is_selected(entry.name); });
  return found;
}
// Of a file's table what the program needs. Nothing refers to the rest, and linkers leave it out.
template <const auto& kEntries>
inline constexpr auto kSelected = select_kernels<kEntries>();
#else
template <const auto& kEntries>
inline constexpr std::span<const KernelEntry> kSelected = kEntries;
#endif

// Registers a file's table if `target` is this CPU's. Code of the target does not run before.
class KernelTable {
 public:
  KernelTable(int64_t target, std::span<const KernelEntry> entries);

 private:
  friend const KernelEntry* find_kernel_of_target(std::string_view name);
  int64_t target_;
  std::span<const KernelEntry> entries_;
  const KernelTable* next_;  // the list of all, for tests of targets
};

}  // namespace edgewise
