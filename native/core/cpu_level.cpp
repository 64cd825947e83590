#include "core/cpu_level.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <algorithm>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "core/simd_targets.h"
#include "hwy/targets.h"
#include "platform/cpu_features.h"

namespace edgewise {
namespace {

constexpr CpuLevel kLevels[] = {
#if defined(__x86_64__)
    {"sse2", HWY_SSE2, CpuLevel::kNone},   {"sse4", HWY_SSE4, CpuLevel::kNone},
    {"avx2", HWY_AVX2, CpuLevel::kNone},   {"avxvnni", HWY_AVX2, CpuLevel::kAvxVnni},
    {"avx512", HWY_AVX3, CpuLevel::kNone}, {"avx512vnni", HWY_AVX3, CpuLevel::kVnni},
#elif defined(__aarch64__)
    {"neon", HWY_NEON_WITHOUT_AES, CpuLevel::kNone},
    {"dotprod", HWY_NEON_WITHOUT_AES, CpuLevel::kDotProduct},
    {"i8mm", HWY_NEON_WITHOUT_AES, CpuLevel::kInt8Products},
    {"sme2", HWY_NEON_WITHOUT_AES, CpuLevel::kSme2},
#else
    {"baseline", HWY_STATIC_TARGET, CpuLevel::kNone},
#endif
};

bool has_extra(CpuLevel::Extra extra) {
  switch (extra) {
    case CpuLevel::kNone:
      return true;
#if defined(__x86_64__)
#ifdef EDGEWISE_EMULATE_AVX_VNNI
    case CpuLevel::kAvxVnni:
      return true;
#else
    case CpuLevel::kAvxVnni: {
      // __builtin_cpu_supports of older compilers does not know it.
      unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
      return __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0 && (eax & (1u << 4)) != 0;
    }
#endif
    case CpuLevel::kVnni:
      __builtin_cpu_init();
      return __builtin_cpu_supports("avx512vnni");
#endif
    case CpuLevel::kDotProduct:
      return platform::has_dot_products();
    case CpuLevel::kInt8Products:
      return platform::has_int8_matrix_products();
    case CpuLevel::kSme2:
      return platform::has_int8_matrix_products() && platform::has_sme2();
    default:
      return false;
  }
}

// Highway's better targets are lower bits.
void allow(const CpuLevel& level) { hwy::DisableTargets(level.target - 1); }

struct State {
  std::vector<CpuLevel> levels;
  size_t chosen;
  std::string unknown;  // what EDGEWISE_CPU says, if it is none of `levels`

  State() {
    const int64_t targets = hwy::SupportedTargets() | HWY_STATIC_TARGET;
    std::ranges::copy_if(kLevels, std::back_inserter(levels), [&](const CpuLevel& level) {
      return (targets & level.target) != 0 && has_extra(level.extra);
    });
    chosen = levels.size() - 1;
    const char* name = std::getenv("EDGEWISE_CPU");
    if (name == nullptr || *name == '\0') return;
    const auto found = std::ranges::find(levels, std::string_view(name), &CpuLevel::name);
    if (found == levels.end()) {
      unknown = name;
      return;
    }
    chosen = static_cast<size_t>(found - levels.begin());
    if (chosen + 1 < levels.size()) allow(*found);
  }
};

State& state() {
  static State instance;
  return instance;
}

}  // namespace

std::span<const CpuLevel> cpu_levels() { return state().levels; }

const CpuLevel& cpu_level() { return state().levels[state().chosen]; }

bool is_cpu_limited() { return state().chosen + 1 < state().levels.size(); }

Status check_cpu_level() {
  if (state().unknown.empty()) return {};
  std::string names;
  for (const CpuLevel& level : state().levels) {
    names += (names.empty() ? "" : ", ") + std::string(level.name);
  }
  return error(Code::kInvalidArgument,
               "[cpu] EDGEWISE_CPU must be a level that this CPU has: %s; got '%s'; "
               "try one of them, or unset it",
               names.c_str(), state().unknown.c_str());
}

void limit_cpu(const CpuLevel& level) {
  const auto found =
      std::ranges::find(state().levels, std::string_view(level.name),
                        [](const CpuLevel& of) { return std::string_view(of.name); });
  state().chosen = static_cast<size_t>(found - state().levels.begin());
  allow(level);
}

}  // namespace edgewise
