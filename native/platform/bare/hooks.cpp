// What firmware may define itself (edgewise/firmware.h), and what happens else.
#include "edgewise/firmware.h"
#include "edgewise/profile.h"
#include "platform/log.h"

extern "C" {

__attribute__((weak)) void edgewise_log(const char*) {}

__attribute__((weak)) int64_t edgewise_clock_nanoseconds() { return 0; }

__attribute__((weak)) void edgewise_out_of_memory(size_t) {}

}  // extern "C"

namespace edgewise {

int64_t profile_clock() { return edgewise_clock_nanoseconds(); }

void platform::log(const char* message) { edgewise_log(message); }

}  // namespace edgewise
