#include "platform/cpu_count.h"

#include <algorithm>
#include <thread>
#include <vector>

#include "platform/windows/api.h"

namespace edgewise::platform {

int physical_core_count() {
  DWORD_PTR allowed = 0;
  DWORD_PTR all = 0;
  GetProcessAffinityMask(GetCurrentProcess(), &allowed, &all);
  DWORD bytes = 0;
  GetLogicalProcessorInformation(nullptr, &bytes);
  std::vector<SYSTEM_LOGICAL_PROCESSOR_INFORMATION> parts(
      bytes / sizeof(SYSTEM_LOGICAL_PROCESSOR_INFORMATION));
  int count = 0;
  if (!parts.empty() && GetLogicalProcessorInformation(parts.data(), &bytes)) {
    for (const auto& part : parts) {
      count += part.Relationship == RelationProcessorCore && (part.ProcessorMask & allowed) != 0;
    }
  }
  if (count <= 0) count = static_cast<int>(std::thread::hardware_concurrency());
  return std::max(count, 1);
}

}  // namespace edgewise::platform
