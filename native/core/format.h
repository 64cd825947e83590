// Text of messages.
#pragma once

#include <cstdarg>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace edgewise {

// vprintf to a string.
std::string format_message(const char* format, va_list arguments);

// As %g.
std::string format_number(double number);

// Names come from files: control characters, which a terminal would obey, as "\x1b". New lines
// and tabs stay.
std::string without_controls(std::string_view text);

// "[1, 3, 224, 224]"
std::string format_sizes(std::span<const int64_t> sizes);

}  // namespace edgewise
