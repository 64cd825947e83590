// Runs a `.pte` file: see kUsage in options.cpp.
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "edgewise/program.h"
#include "platform/process.h"
#include "tools/inputs.h"
#include "tools/npy.h"
#include "tools/options.h"
#include "tools/report.h"

namespace edgewise::tools {

namespace {

double now_ms() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double, std::milli>(now).count();
}

// The dynamic linker looks for names without a slash in the system's folders.
std::string file_path(const std::string& path) {
  return path.find('/') == std::string::npos ? "./" + path : path;
}

std::string describe(const Value& value) {
  if (const Tensor* tensor = value.get<Tensor>()) return tensor->describe();
  if (const int64_t* integer = value.get<int64_t>()) return std::to_string(*integer);
  if (const double* number = value.get<double>()) return std::to_string(*number);
  if (const bool* boolean = value.get<bool>()) return *boolean ? "True" : "False";
  return std::string(value.kind());
}

Status set_inputs(Method& method, const Inputs& inputs) {
  for (size_t i = 0; i < inputs.values.size(); ++i) {
    // A made-up input that is no tensor keeps the value that it has.
    if (inputs.values[i].is_none()) continue;
    EDGEWISE_RETURN_IF_ERROR(method.set_input(i, inputs.values[i]));
  }
  return Status::ok_status();
}

Status make_folder(const std::string& folder) {
  if (folder.empty()) return Status::ok_status();
  std::error_code failed;
  std::filesystem::create_directories(folder, failed);
  if (!failed) return Status::ok_status();
  return error(Code::kIo, "[edgewise_run] --output-dir must be a folder; '%s' cannot be made: %s",
               folder.c_str(), failed.message().c_str());
}

Status write_outputs(const Method& method, const std::string& folder, Report& report) {
  for (size_t i = 0; i < method.info().outputs.size(); ++i) {
    const Value& value = *method.output(i);
    report.outputs.push_back(describe(value));
    const Tensor* tensor = value.get<Tensor>();
    std::string& file = report.files.emplace_back();
    if (folder.empty() || tensor == nullptr) continue;
    file = folder + "/output_" + std::to_string(i) + ".npy";
    EDGEWISE_RETURN_IF_ERROR(write_npy(file, *tensor));
  }
  return Status::ok_status();
}

// A disk may be full, and a pipe closed.
Status print(const std::string& text) {
  if (std::fputs(text.c_str(), stdout) >= 0 && std::fflush(stdout) == 0) {
    return Status::ok_status();
  }
  return error(Code::kIo, "[edgewise_run] the output cannot be written: %s", std::strerror(errno));
}

Status run(const Options& options) {
  Report report;
  report.model = options.model;
  for (const std::string& path : options.kernels) {
    EDGEWISE_RETURN_IF_ERROR(load_kernel_library(file_path(path)).status());
  }
  for (const std::string& path : options.backends) {
    EDGEWISE_RETURN_IF_ERROR(load_backend_library(file_path(path)).status());
  }
  EDGEWISE_RETURN_IF_ERROR(make_folder(options.output_dir));
  const double start = now_ms();
  LoadOptions load;
  load.threads = options.threads;
  load.own_kernels = options.own_kernels;
  load.max_memory = options.max_memory;
  load.cache_dir = options.cache_dir;
  Result<std::shared_ptr<Program>> program = Program::load_file(options.model, load);
  if (!program) return program.status();
  Result<std::unique_ptr<Method>> loaded = (*program)->load_method(options.method);
  if (!loaded) return loaded.status();
  report.load_ms = now_ms() - start;
  Method& method = **loaded;
  report.method = method.info();
  report.file_bytes = (*program)->size_bytes();

  report.made_up_inputs = options.inputs.empty() && !report.method.inputs.empty();
  Result<Inputs> inputs = report.made_up_inputs ? make_inputs(report.method)
                                                : read_inputs(report.method, options.inputs);
  if (!inputs) return inputs.status();
  RunProfile profile;
  if (options.profile) report.profile.emplace();
  for (int i = 0; i < options.warmup + options.iterations; ++i) {
    // Inputs are part of the run: a caller copies them in, too.
    const double begin = now_ms();
    EDGEWISE_RETURN_IF_ERROR(set_inputs(method, *inputs));
    EDGEWISE_RETURN_IF_ERROR(method.execute(options.profile ? &profile : nullptr));
    if (i < options.warmup) continue;
    report.latencies_ms.push_back(now_ms() - begin);
    if (report.profile) report.profile->add(profile);
  }
  EDGEWISE_RETURN_IF_ERROR(write_outputs(method, options.output_dir, report));
  report.peak_memory_bytes = platform::peak_memory();
  return print(options.json ? to_json(report) : to_text(report));
}

int run_main(int argc, const char* const* argv) {
  const Result<Options> options = parse_options(argc, argv);
  if (!options) {
    std::fprintf(stderr, "%s\n", options.status().message().c_str());
    return 2;
  }
  if (options.value().help) {
    return print(kUsage).ok() ? 0 : 1;
  }
  const Status status = run(options.value());
  if (status.ok()) return 0;
  std::fprintf(stderr, "error (%s): %s\n", std::string(to_string(status.code())).c_str(),
               status.message().c_str());
  return 1;
}

}  // namespace

}  // namespace edgewise::tools

int main(int argc, char** argv) { return edgewise::tools::run_main(argc, argv); }
