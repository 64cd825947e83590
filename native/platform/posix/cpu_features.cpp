#include "platform/cpu_features.h"

#if defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif

namespace edgewise::platform {

#if defined(__aarch64__) && defined(__linux__)
bool has_dot_products() { return (getauxval(AT_HWCAP) & (1UL << 20)) != 0; }
bool has_int8_matrix_products() { return (getauxval(AT_HWCAP2) & (1UL << 13)) != 0; }
bool has_sme2() { return (getauxval(AT_HWCAP2) & (1UL << 37)) != 0; }
#else
bool has_dot_products() { return false; }
bool has_int8_matrix_products() { return false; }
bool has_sme2() { return false; }
#endif

}  // namespace edgewise::platform
