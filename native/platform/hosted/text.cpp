#include "platform/text.h"

#include <cstdio>

namespace edgewise::platform {

std::string print_text(const char* format, va_list arguments) {
  va_list measured;
  va_copy(measured, arguments);
  const int length = std::vsnprintf(nullptr, 0, format, measured);
  va_end(measured);
  if (length <= 0) return {};
  std::string message(static_cast<size_t>(length), '\0');
  // The terminator goes where std::string keeps its own.
  std::vsnprintf(message.data(), message.size() + 1, format, arguments);
  return message;
}

}  // namespace edgewise::platform
