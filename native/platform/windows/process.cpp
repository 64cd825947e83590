#include "platform/process.h"

#include "platform/windows/api.h"
// After it.
#include <psapi.h>

namespace edgewise::platform {

size_t physical_memory() {
  MEMORYSTATUSEX status{};
  status.dwLength = sizeof(status);
  return GlobalMemoryStatusEx(&status) ? static_cast<size_t>(status.ullTotalPhys) : 0;
}

size_t peak_memory() {
  PROCESS_MEMORY_COUNTERS counters{};
  counters.cb = sizeof(counters);
  if (!K32GetProcessMemoryInfo(GetCurrentProcess(), &counters, sizeof(counters))) return 0;
  return counters.PeakWorkingSetSize;
}

unsigned fork_count() { return 0; }

}  // namespace edgewise::platform
