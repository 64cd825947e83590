#include "tools/report.h"

#include <map>
#include <utility>

#include "core/format.h"
#include "tools/text.h"

namespace edgewise::tools {

namespace {

std::string sizes_text(const std::vector<int64_t>& sizes) {
  std::string text = "[";
  for (const int64_t size : sizes) {
    if (text.size() > 1) text += ", ";
    text += std::to_string(size);
  }
  return text + "]";
}

std::string describe(const ValueInfo& info) {
  if (info.kind != "Tensor") return info.kind;
  std::string text(to_string(info.type));
  if (info.dynamism == Dynamism::kDynamicBound) text += " of at most ";
  if (info.dynamism == Dynamism::kDynamicUnbound) {
    return text + " of rank " + std::to_string(info.sizes.size());
  }
  return text + sizes_text(info.sizes);
}

double megabytes(size_t bytes) { return static_cast<double>(bytes) / 1e6; }

size_t total(const std::vector<size_t>& parts) {
  size_t sum = 0;
  for (const size_t part : parts) sum += part;
  return sum;
}

}  // namespace

std::string to_text(const Report& report) {
  const MethodInfo& method = report.method;
  std::string text = report.model;
  append(text, ": %.2f MB, method ", megabytes(report.file_bytes));
  text += method.name + "\n";
  for (size_t i = 0; i < method.inputs.size(); ++i) {
    append(text, "  input %zu   ", i);
    text += describe(method.inputs[i]) + "\n";
  }
  if (report.made_up_inputs) {
    text += "             filled with pseudo-random numbers; give --input to set them\n";
  }
  for (size_t i = 0; i < report.outputs.size(); ++i) {
    append(text, "  output %zu  ", i);
    text += report.outputs[i];
    if (!report.files[i].empty()) text += " -> " + report.files[i];
    text += "\n";
  }
  std::map<std::string, std::pair<size_t, size_t>> backends;  // number and payload bytes
  for (const DelegateInfo& delegate : method.delegates) {
    auto& [count, bytes] = backends[delegate.backend];
    ++count;
    bytes += delegate.payload_bytes;
  }
  for (const auto& [backend, sums] : backends) {
    append(text, "  delegates  %zu of ", sums.first);
    text += backend;
    append(text, ", payloads %.2f MB\n", megabytes(sums.second));
  }
  append(text, "  %zu instructions, %zu different operators outside of delegates\n",
         method.instruction_count, method.operators.size());
  append(text, "  memory: %.2f MB planned, %.2f MB peak of the process\n",
         megabytes(total(method.planned_memory)), megabytes(report.peak_memory_bytes));
  const Summary latency = summarize(report.latencies_ms);
  append(text, "  load: %.2f ms\n", report.load_ms);
  append(text, "  latency of %zu runs: min %.3f ms, median %.3f ms, p90 %.3f ms\n",
         report.latencies_ms.size(), latency.min, latency.median, latency.p90);
  if (report.profile) text += to_text(*report.profile, method);
  return without_controls(text);
}

std::string to_json(const Report& report) {
  const MethodInfo& method = report.method;
  const Summary latency = summarize(report.latencies_ms);
  const auto as_is = [](const std::string& item) { return quote(item); };
  std::string text = "{\"model\": " + quote(report.model);
  text += ", \"method\": " + quote(method.name);
  append(text, ", \"file_bytes\": %zu", report.file_bytes);
  text += ", \"inputs\": " +
          list(method.inputs, [](const ValueInfo& info) { return quote(describe(info)); });
  text += std::string(", \"made_up_inputs\": ") + (report.made_up_inputs ? "true" : "false");
  text += ", \"outputs\": " + list(report.outputs, as_is);
  text += ", \"files\": " + list(report.files, as_is);
  text += ", \"delegates\": " + list(method.delegates, [](const DelegateInfo& info) {
            return "{\"backend\": " + quote(info.backend) +
                   ", \"payload_bytes\": " + std::to_string(info.payload_bytes) + "}";
          });
  text += ", \"operators\": " + list(method.operators, as_is);
  append(text, ", \"instructions\": %zu, \"planned_bytes\": %zu, \"peak_bytes\": %zu",
         method.instruction_count, total(method.planned_memory), report.peak_memory_bytes);
  append(text, ", \"load_ms\": %.4f, \"iterations\": %zu", report.load_ms,
         report.latencies_ms.size());
  append(text, ", \"latency_ms\": {\"min\": %.4f, \"median\": %.4f, \"p90\": %.4f}", latency.min,
         latency.median, latency.p90);
  if (report.profile) text += ", \"profile\": " + to_json(*report.profile, method);
  return text + "}\n";
}

}  // namespace edgewise::tools
