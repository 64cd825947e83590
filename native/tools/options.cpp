#include "tools/options.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <string_view>

namespace edgewise::tools {

const char* const kUsage =
    R"(usage: edgewise_run MODEL.pte [options]

Loads a program, runs one of its methods and prints its inputs, outputs, delegates,
latency and memory.

  --method NAME       the method to run (forward)
  --input FILE.npy    the next input; also a number, True or False. Once for each input;
                      without any, inputs are filled with pseudo-random numbers, the
                      same in every run
  --output-dir DIR    write outputs to DIR/output_0.npy, DIR/output_1.npy, ...; DIR is
                      made if need be
  --threads N         threads of the program; 0: one for each physical core (0)
  --kernels FILE.so   a library of kernels (edgewise/kernel_library.h). Once for each
  --backends FILE.so  a library of backends (edgewise/backend_library.h). Once for each
  --no-own-kernels    backends use only their library's kernels, for comparison
  --iterations N      timed runs (1)
  --warmup N          runs before them that are not timed (0)
  --max-memory BYTES  refuse a method that plans for more, and tensors that grow beyond it
  --cache-dir DIR     keep packed weights in DIR, so that the next start maps them
  --profile           where the time of the timed runs goes: by step of the program and, inside
                      delegates, by operator
  --json              print one JSON object instead of text
  --help              print this

Exit code: 0 success, 1 failure, 2 wrong usage.
)";

namespace {

Status usage_error(const std::string& message) {
  return error(Code::kInvalidArgument, "[edgewise_run] %s; try --help", message.c_str());
}

constexpr std::string_view kWithValue[] = {"--method",     "--kernels",  "--backends",   "--input",
                                           "--output-dir", "--threads",  "--iterations", "--warmup",
                                           "--max-memory", "--cache-dir"};

constexpr int kMostCount = 1'000'000'000;
constexpr size_t kMostMemory = size_t{1} << (8 * sizeof(size_t) - 2);

template <typename T>
Status parse_count(std::string_view name, const std::string& text, T least, T most, T* result) {
  T value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, failure] = std::from_chars(text.data(), end, value);
  if (failure != std::errc() || stop != end || value < least || value > most) {
    return usage_error(std::string(name) + " takes a number from " + std::to_string(least) +
                       " on; got '" + text + "'");
  }
  *result = value;
  return Status::ok_status();
}

}  // namespace

Result<Options> parse_options(int argc, const char* const* argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    std::string name = argv[i];
    if (name == "--help" || name == "-h") {
      options.help = true;
      return options;
    }
    if (name == "--json") {
      options.json = true;
      continue;
    }
    if (name == "--profile") {
      options.profile = true;
      continue;
    }
    if (name == "--no-own-kernels") {
      options.own_kernels = false;
      continue;
    }
    if (!name.starts_with("-")) {
      if (!options.model.empty()) {
        return usage_error("one model is run; got '" + options.model + "' and '" + name + "'");
      }
      options.model = name;
      continue;
    }
    // --name value or --name=value
    std::string value;
    if (const size_t equals = name.find('='); equals != std::string::npos) {
      value = name.substr(equals + 1);
      name.resize(equals);
    } else if (std::ranges::find(kWithValue, name) == std::end(kWithValue)) {
      return usage_error("the option '" + name + "' is not known");
    } else if (i + 1 < argc) {
      value = argv[++i];
    } else {
      return usage_error(name + " needs a value");
    }
    Status status;
    if (name == "--method") {
      options.method = value;
    } else if (name == "--input") {
      options.inputs.push_back(value);
    } else if (name == "--kernels") {
      options.kernels.push_back(value);
    } else if (name == "--backends") {
      options.backends.push_back(value);
    } else if (name == "--cache-dir") {
      options.cache_dir = value;
    } else if (name == "--output-dir") {
      options.output_dir = value;
    } else if (name == "--threads") {
      status = parse_count(name, value, 0, kMostCount, &options.threads);
    } else if (name == "--iterations") {
      status = parse_count(name, value, 1, kMostCount, &options.iterations);
    } else if (name == "--warmup") {
      status = parse_count(name, value, 0, kMostCount, &options.warmup);
    } else if (name == "--max-memory") {
      status = parse_count(name, value, size_t{1}, kMostMemory, &options.max_memory);
    } else {
      status = usage_error("the option '" + name + "' is not known");
    }
    if (!status.ok()) return status;
  }
  if (options.model.empty()) return usage_error("a model is needed");
  return options;
}

}  // namespace edgewise::tools
