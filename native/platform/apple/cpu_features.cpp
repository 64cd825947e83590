#include "platform/cpu_features.h"

#include "platform/apple/sysctl.h"

namespace edgewise::platform {

#if defined(__aarch64__)
// All of Apple's have them; the kernel has a name for them from macOS 12 on.
bool has_dot_products() { return apple::read_number("hw.optional.arm.FEAT_DotProd", 1) != 0; }
#else
bool has_dot_products() { return false; }
#endif

// From the M2 on.
bool has_int8_matrix_products() { return apple::read_number("hw.optional.arm.FEAT_I8MM", 0) != 0; }

// From the M4 on.
bool has_sme2() { return apple::read_number("hw.optional.arm.FEAT_SME2", 0) != 0; }

}  // namespace edgewise::platform
