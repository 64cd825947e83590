#include "platform/cpu_features.h"

namespace edgewise::platform {

bool has_dot_products() { return false; }
bool has_int8_matrix_products() { return false; }
bool has_sme2() { return false; }

}  // namespace edgewise::platform
