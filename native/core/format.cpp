#include "format.h"

#include <cstdio>

namespace edgewise {

std::string format_message(const char* format, va_list arguments) {
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

std::string format_sizes(std::span<const int64_t> sizes) {
  std::string text = "[";
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (i != 0) text += ", ";
    text += std::to_string(sizes[i]);
  }
  return text + "]";
}

}  // namespace edgewise
