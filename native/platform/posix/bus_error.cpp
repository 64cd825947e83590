#include "platform/posix/bus_error.h"

namespace edgewise::platform {

bool is_missing_page(const siginfo_t& info, const void* /*context*/) {
  return info.si_code == BUS_ADRERR;
}

bool is_sent(const siginfo_t& info) { return info.si_code <= 0; }

}  // namespace edgewise::platform
