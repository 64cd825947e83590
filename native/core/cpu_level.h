// The vector instructions that kernels use: what this CPU has, or less if EDGEWISE_CPU says so.
#pragma once

#include <cstdint>
#include <span>

#include "edgewise/status.h"

namespace edgewise {

struct CpuLevel {
  const char* name;  // what EDGEWISE_CPU is set to
  int64_t target;    // the best of Highway's targets (hwy/detect_targets.h) that it allows
  // What products use of it, beyond the target; on Arm each has those before it.
  enum Extra : uint8_t { kNone, kAvxVnni, kVnni, kDotProduct, kInt8Products, kSme2 } extra;
};

// Those that this CPU has, the lowest first.
std::span<const CpuLevel> cpu_levels();

// The one in force. If EDGEWISE_CPU names none of cpu_levels() it is the highest, and
// check_cpu_level() fails; every program is refused then.
const CpuLevel& cpu_level();
Status check_cpu_level();

// Whether the one in force is below the highest.
bool is_cpu_limited();

// For tests: as if EDGEWISE_CPU were `level`'s name. Kernels that were chosen before stay.
void limit_cpu(const CpuLevel& level);

}  // namespace edgewise
