// The kernel says BUS_ADRALN and the address of the last fault of any SIGBUS, also of one that
// somebody sent. Where Linux sends SIGSEGV, for writing to what may only be read, it sends SIGBUS.
#include "platform/posix/bus_error.h"

#include <sys/ucontext.h>

#include <cstdint>

namespace edgewise::platform {

namespace {

// By what the CPU has noted of the fault.
bool is_write(const mcontext_t& machine) {
#if defined(__aarch64__)
  return (machine->__es.__esr & (uint32_t{1} << 6)) != 0;
#else
  return (machine->__es.__err & (uint32_t{1} << 1)) != 0;
#endif
}

}  // namespace

bool is_missing_page(const siginfo_t& /*info*/, const void* context) {
  return !is_write(static_cast<const ucontext_t*>(context)->uc_mcontext);
}

bool is_sent(const siginfo_t& /*info*/) { return true; }

}  // namespace edgewise::platform
