// Instructions of the CPU that XNNPACK is not told of: those beyond EDGEWISE_CPU
// (core/cpu_level.h).
#pragma once

#include <string>

namespace edgewise::xnnpack {

// To be called before XNNPACK is initialized.
void limit_xnnpack();

// Whether 4-bit weights may have an odd number of groups. Kernels of November 2024 for x86 without
// AVX read sums of 16 bytes where a panel of so many groups puts them at multiples of 8, and crash.
bool takes_odd_groups();

// Whether no core starts an instruction before those that precede it (Cortex-A53, A55, A510 ...):
// XNNPACK has GEMMs for them that are written load by load.
bool is_in_order();

// What XNNPACK chooses kernels by, and with them how weights are packed: the CPU's instructions,
// as they are limited, and its kinds of cores.
std::string cpu_identity();

}  // namespace edgewise::xnnpack
