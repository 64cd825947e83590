// Text of messages.
#pragma once

#include <cstdarg>
#include <cstdint>
#include <span>
#include <string>

namespace edgewise {

// vprintf to a string.
std::string format_message(const char* format, va_list arguments);

// "[1, 3, 224, 224]"
std::string format_sizes(std::span<const int64_t> sizes);

}  // namespace edgewise
