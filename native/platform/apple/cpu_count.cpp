#include "platform/cpu_count.h"

#include <algorithm>

#include "platform/apple/sysctl.h"

namespace edgewise::platform {

// Processes cannot be bound to CPUs there. Efficiency cores count, too: threads that are done with
// their share of the work take from others.
int physical_core_count() { return std::max(apple::read_number("hw.physicalcpu", 1), 1); }

}  // namespace edgewise::platform
