#include "format.h"

#include "platform/text.h"

namespace edgewise {

std::string format_message(const char* format, va_list arguments) {
  return platform::print_text(format, arguments);
}

namespace {

std::string formatted(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  std::string text = format_message(format, arguments);
  va_end(arguments);
  return text;
}

}  // namespace

std::string format_number(double number) { return formatted("%g", number); }

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
