// The CPU is the one that the firmware was compiled for.
#include "core/cpu_level.h"

#include "core/simd_targets.h"
#include "hwy/detect_targets.h"

namespace edgewise {

namespace {

constexpr CpuLevel kLevel{"baseline", HWY_STATIC_TARGET, CpuLevel::kNone};

}  // namespace

std::span<const CpuLevel> cpu_levels() { return {&kLevel, 1}; }
const CpuLevel& cpu_level() { return kLevel; }
Status check_cpu_level() { return {}; }
bool is_cpu_limited() { return false; }
void limit_cpu(const CpuLevel&) {}

}  // namespace edgewise
