// Pieces of text and JSON, and what a row of times comes to.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "edgewise/status.h"

namespace edgewise::tools {

// As printf; at most 511 characters.
EDGEWISE_FORMAT(2, 3) void append(std::string& text, const char* format, ...);

// A JSON string.
std::string quote(std::string_view text);

// A JSON array.
template <typename Items, typename ToText>
std::string list(const Items& items, ToText to_text) {
  std::string text = "[";
  for (const auto& item : items) {
    if (text.size() > 1) text += ", ";
    text += to_text(item);
  }
  return text + "]";
}

// In the unit of the times.
struct Summary {
  double min = 0;
  double median = 0;
  double p90 = 0;
};

Summary summarize(std::vector<double> times);

}  // namespace edgewise::tools
