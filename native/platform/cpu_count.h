#pragma once

namespace edgewise::platform {

// Physical cores among the CPUs that this process may run on; at least 1.
int physical_core_count();

}  // namespace edgewise::platform
