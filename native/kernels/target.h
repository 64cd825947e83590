// The kernels are compiled once for each level of instructions that a CPU may have, every
// level in a namespace of its own, and those of the best level that this CPU has are
// registered. What is included here is compiled for any CPU: a header of the standard
// library must not be met first below the pragma of a level, since its inline functions
// are shared by all levels.
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
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "edgewise/kernel.h"
#include "edgewise/scalar_type.h"
#include "edgewise/status.h"
#include "edgewise/tensor.h"
#include "edgewise/value.h"

// Set by the files that CMake makes for the further levels; 3 and 4 are those of the
// x86-64 psABI.
#ifndef EDGEWISE_TARGET
#define EDGEWISE_TARGET baseline
#define EDGEWISE_LEVEL 0
#endif

// Before a loop whose iterations may run in any order, or at once.
#if defined(__clang__)
#define EDGEWISE_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define EDGEWISE_INDEPENDENT _Pragma("GCC ivdep")
#endif

namespace edgewise {

// The best of the levels built into this library that this CPU has; 0 is any CPU.
int kernel_level();

#if EDGEWISE_LEVEL >= 3
// Also AVX-512, for functions that ask: they have EDGEWISE_WIDE, their vectors 64 bytes.
#define EDGEWISE_WIDE gnu::target("avx512f,avx512dq,avx512bw,avx512vl")
bool has_wide();
#endif

struct KernelEntry {
  const char* name;
  size_t argument_count;
  KernelFunction function;
};

// Registers a file's table if `level` is this CPU's. Code of the level does not run before.
class KernelTable {
 public:
  KernelTable(int level, std::span<const KernelEntry> entries);

 private:
  friend const KernelEntry* find_kernel_of_level(int level, std::string_view name);
  int level_;
  std::span<const KernelEntry> entries_;
  const KernelTable* next_;  // the list of all, for tests of levels
};

}  // namespace edgewise
