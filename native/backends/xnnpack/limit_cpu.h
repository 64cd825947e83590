// EDGEWISE_CPU (core/cpu_level.h) limits XNNPACK, too.
#pragma once

namespace edgewise::xnnpack {

// To be called before XNNPACK is initialized.
void limit_xnnpack_to_cpu_level();

}  // namespace edgewise::xnnpack
