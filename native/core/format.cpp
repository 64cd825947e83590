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

std::string without_controls(std::string_view text) {
  std::string shown;
  shown.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const auto next = static_cast<unsigned char>(i + 1 < text.size() ? text[i + 1] : 0);
    // The second half of the control characters has two bytes in UTF-8.
    const bool pair = byte == 0xc2 && next >= 0x80 && next < 0xa0;
    if (!pair && byte != 0x7f && (byte >= 0x20 || byte == '\n' || byte == '\t')) {
      shown += text[i];
      continue;
    }
    constexpr char kDigits[] = "0123456789abcdef";
    const unsigned char code = pair ? next : byte;
    shown.append("\\x").append({kDigits[code >> 4], kDigits[code & 15]});
    i += pair;
  }
  return shown;
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
