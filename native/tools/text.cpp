#include "tools/text.h"

#include <algorithm>
#include <cmath>
#include <cstdarg>
#include <cstdio>

namespace edgewise::tools {

void append(std::string& text, const char* format, ...) {
  char line[512];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(line, sizeof(line), format, arguments);
  va_end(arguments);
  text += line;
}

std::string quote(std::string_view text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    if (static_cast<unsigned char>(c) < 0x20) {
      append(result, "\\u%04x", static_cast<unsigned>(c));
    } else {
      result += c;
    }
  }
  return result + "\"";
}

Summary summarize(std::vector<double> times) {
  if (times.empty()) return {};
  std::ranges::sort(times);
  const auto at = [&times](double share) {
    const double rank = std::ceil(share * static_cast<double>(times.size()));
    return times[static_cast<size_t>(std::max(rank, 1.0)) - 1];
  };
  const size_t half = times.size() / 2;
  const double median = times.size() % 2 ? times[half] : (times[half - 1] + times[half]) / 2;
  return {times.front(), median, at(0.9)};
}

}  // namespace edgewise::tools
