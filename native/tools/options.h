// The runner's command line.
#pragma once

#include <string>
#include <vector>

#include "edgewise/status.h"

namespace edgewise::tools {

struct Options {
  std::string model;
  std::string method = "forward";
  std::vector<std::string> kernels;   // libraries of kernels
  std::vector<std::string> backends;  // libraries of backends
  std::vector<std::string> inputs;    // .npy files or numbers, one for each input
  std::string output_dir;             // empty: outputs are not written
  int threads = 0;
  int iterations = 1;
  int warmup = 0;
  size_t max_memory = 0;  // bytes; 0: no bound
  std::string cache_dir;  // of packed weights; empty: none
  bool own_kernels = true;
  bool profile = false;
  bool json = false;
  bool help = false;
};

extern const char* const kUsage;

// Failures are for a person who mistyped.
Result<Options> parse_options(int argc, const char* const* argv);

}  // namespace edgewise::tools
