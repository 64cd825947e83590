// Messages without the C library's printf, whose code is larger than the rest of the runtime.
#include "platform/text.h"
#include "platform/bare/print.h"

namespace edgewise::platform {

std::string print_text(const char* format, va_list arguments) {
  return bare::print(format, arguments);
}

}  // namespace edgewise::platform
