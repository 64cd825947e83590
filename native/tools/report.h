// What the runner prints.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "edgewise/program.h"
#include "tools/profile_table.h"

namespace edgewise::tools {

struct Report {
  std::string model;
  size_t file_bytes = 0;
  MethodInfo method;
  bool made_up_inputs = false;
  std::vector<std::string> outputs;  // "float32[1, 1000]", "3", one for each
  std::vector<std::string> files;    // that they were written to; empty: not written
  double load_ms = 0;                // program and method
  std::vector<double> latencies_ms;  // of each timed run
  size_t peak_memory_bytes = 0;      // of the process
  std::optional<ProfileTable> profile;
};

std::string to_text(const Report& report);
std::string to_json(const Report& report);

}  // namespace edgewise::tools
