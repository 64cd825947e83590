// Failures as the C interface shows them: a code, and a text kept for the calling thread.
#pragma once

#include <exception>
#include <new>

#include "edgewise.h"
#include "edgewise/status.h"

namespace edgewise::c {

// Keeps the text of a failure and returns its code; EDGEWISE_OK changes nothing.
edgewise_code report(const Status& status) noexcept;
edgewise_code report_out_of_memory() noexcept;

// Keeps "[function] `name` must point to something; got null".
edgewise_code report_null(const char* function, const char* name) noexcept;

// What `body` (a function that returns a Status) comes to, exceptions included.
template <typename Body>
edgewise_code guarded(Body&& body) noexcept {
  try {
    return report(body());
  } catch (const std::bad_alloc&) {
    return report_out_of_memory();
  } catch (const std::exception& failure) {
    try {
      return report(error(Code::kInternal, "[edgewise] %s", failure.what()));
    } catch (...) {
      return report_out_of_memory();
    }
  }
}

}  // namespace edgewise::c

// Returns the failure if a pointer argument is null.
#define EDGEWISE_C_NOT_NULL(argument)                                                \
  do {                                                                               \
    if ((argument) == nullptr) return edgewise::c::report_null(__func__, #argument); \
  } while (false)
