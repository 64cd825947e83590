// The border that no exception crosses: the library's own code throws none, what it calls may.
#pragma once

#include <exception>
#include <new>

#include "edgewise/status.h"

namespace edgewise {

// What `call` returns, a Status or a Result; an exception becomes a failure of `where`. Without
// exceptions (-fno-exceptions) memory that runs out ends the program instead.
template <typename Call>
auto guarded(const char* where, Call&& call) -> decltype(call()) {
#if defined(__cpp_exceptions)
  try {
    return call();
  } catch (const std::bad_alloc&) {
    return error(Code::kOutOfMemory, "[%s] there is no memory left", where);
  } catch (const std::exception& failure) {
    return error(Code::kInternal, "[%s] %s", where, failure.what());
  }
#else
  static_cast<void>(where);
  return call();
#endif
}

}  // namespace edgewise
