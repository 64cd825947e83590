// What the standard library calls where it would throw: without exceptions there is no more to do
// than to stop, and the code that makes exceptions is not linked.
#include <cstdlib>

namespace std {

#define EDGEWISE_STOPS(...) \
  [[noreturn]] void __VA_ARGS__ { ::abort(); }

EDGEWISE_STOPS(__throw_bad_alloc())
EDGEWISE_STOPS(__throw_bad_array_new_length())
EDGEWISE_STOPS(__throw_bad_cast())
EDGEWISE_STOPS(__throw_bad_function_call())
EDGEWISE_STOPS(__throw_invalid_argument(const char*))
EDGEWISE_STOPS(__throw_length_error(const char*))
EDGEWISE_STOPS(__throw_logic_error(const char*))
EDGEWISE_STOPS(__throw_out_of_range(const char*))
EDGEWISE_STOPS(__throw_out_of_range_fmt(const char*, ...))
EDGEWISE_STOPS(__throw_runtime_error(const char*))

}  // namespace std

extern "C" void __cxa_pure_virtual() { ::abort(); }
