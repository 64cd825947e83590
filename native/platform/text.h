// printf for messages.
#pragma once

#include <cstdarg>
#include <string>

namespace edgewise::platform {

// vprintf to a string. Without an operating system it knows %s %.*s %c %d %u %x %zu %lld %llu %g, a
// width with zeros (%02x), and %%; see platform/bare/text.cpp.
std::string print_text(const char* format, va_list arguments);

}  // namespace edgewise::platform
