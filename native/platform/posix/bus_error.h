// What a signal SIGBUS says of itself.
#pragma once

#include <signal.h>

namespace edgewise::platform {

// Whether memory was read at info.si_addr that is mapped and has no page; `context` is the
// handler's third argument.
bool is_missing_page(const siginfo_t& info, const void* context);
// Whether it came from somebody, and returning does not bring it again; true if that is not told.
bool is_sent(const siginfo_t& info);

}  // namespace edgewise::platform
