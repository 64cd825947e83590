#include "backends/xnnpack/limit_cpu.h"

#include <cpuinfo.h>

#include <string_view>

#include "core/cpu_level.h"

namespace edgewise::xnnpack {
namespace {

// Fields that a version of cpuinfo lacks are left out.
#define EDGEWISE_WITHOUT(feature) \
  if constexpr (requires { isa->feature; }) isa->feature = false

// XNNPACK asks cpuinfo, whose answers are kept here.
template <typename Isa>
[[maybe_unused]] void limit(std::string_view level, Isa* isa) {
#if defined(__x86_64__)
  // Each level lacks what those above it have.
  EDGEWISE_WITHOUT(avx512vnni);
  EDGEWISE_WITHOUT(avx512vbmi);
  EDGEWISE_WITHOUT(avx512bf16);
  EDGEWISE_WITHOUT(avx512fp16);
  EDGEWISE_WITHOUT(gfni);
  EDGEWISE_WITHOUT(avx_vnni_int8);
  EDGEWISE_WITHOUT(avx_vnni_int16);
  EDGEWISE_WITHOUT(amx_tile);
  EDGEWISE_WITHOUT(amx_int8);
  EDGEWISE_WITHOUT(amx_bf16);
  EDGEWISE_WITHOUT(amx_fp16);
  if (level != "avxvnni") {
    EDGEWISE_WITHOUT(avxvnni);
  }
  if (level == "avx512") return;
  EDGEWISE_WITHOUT(avx512f);
  EDGEWISE_WITHOUT(avx512cd);
  EDGEWISE_WITHOUT(avx512dq);
  EDGEWISE_WITHOUT(avx512bw);
  EDGEWISE_WITHOUT(avx512vl);
  EDGEWISE_WITHOUT(avx10_1);
  EDGEWISE_WITHOUT(avx10_2);
  if (level == "avx2" || level == "avxvnni") return;
  EDGEWISE_WITHOUT(avx);
  EDGEWISE_WITHOUT(avx2);
  EDGEWISE_WITHOUT(fma3);
  EDGEWISE_WITHOUT(f16c);
  EDGEWISE_WITHOUT(xop);
  if (level == "sse4") return;
  EDGEWISE_WITHOUT(sse4_1);
  EDGEWISE_WITHOUT(sse4_2);
  EDGEWISE_WITHOUT(ssse3);
#elif defined(__aarch64__)
  EDGEWISE_WITHOUT(i8mm);
  EDGEWISE_WITHOUT(bf16);
  EDGEWISE_WITHOUT(sve);
  EDGEWISE_WITHOUT(sve2);
  EDGEWISE_WITHOUT(sme);
  EDGEWISE_WITHOUT(sme2);
  if (level == "dotprod") return;
  EDGEWISE_WITHOUT(dot);
  EDGEWISE_WITHOUT(fp16arith);
  EDGEWISE_WITHOUT(rdm);
#else
  (void)level;
  (void)isa;
#endif
}

}  // namespace

void limit_xnnpack() {
#if defined(__x86_64__) || defined(__aarch64__)
  [[maybe_unused]] static const bool once = [] {
    if (is_cpu_limited() && cpuinfo_initialize()) limit(cpu_level().name, &cpuinfo_isa);
    return true;
  }();
#endif
}

std::string cpu_identity() {
  limit_xnnpack();
  std::string result = cpu_level().name;
#ifndef __EMSCRIPTEN__  // of which cpuinfo knows nothing
  if (!cpuinfo_initialize()) return result;
#if defined(__x86_64__) || defined(__aarch64__)
  result.append(reinterpret_cast<const char*>(&cpuinfo_isa), sizeof(cpuinfo_isa));
#endif
  for (uint32_t i = 0; i < cpuinfo_get_uarchs_count(); ++i) {
    result += " " + std::to_string(static_cast<uint32_t>(cpuinfo_get_uarch(i)->uarch));
  }
#endif
  return result;
}

bool is_in_order() {
#if defined(__aarch64__)
  if (!cpuinfo_initialize()) return false;
  const uint32_t count = cpuinfo_get_uarchs_count();
  for (uint32_t i = 0; i < count; ++i) {
    switch (cpuinfo_get_uarch(i)->uarch) {
      case cpuinfo_uarch_cortex_a32:
      case cpuinfo_uarch_cortex_a35:
      case cpuinfo_uarch_cortex_a53:
      case cpuinfo_uarch_cortex_a55r0:
      case cpuinfo_uarch_cortex_a55:
      case cpuinfo_uarch_cortex_a510:
        continue;
      default:
        return false;
    }
  }
  return count > 0;
#else
  return false;
#endif
}

bool takes_odd_groups() {
#if defined(__x86_64__)
  limit_xnnpack();
  return cpuinfo_initialize() && cpuinfo_has_x86_avx();
#else
  return true;
#endif
}

}  // namespace edgewise::xnnpack
