#include "platform/cpu_count.h"

#include <algorithm>
#include <cstdio>
#include <set>
#include <string>
#include <thread>
#include <utility>

#ifdef __linux__
#include <sched.h>
#endif

namespace edgewise::platform {

namespace {

#ifdef __linux__
// A number of /sys/devices/system/cpu/cpuN/topology; -1 if there is none.
int read_topology(int cpu, const char* name) {
  const std::string path =
      "/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/" + name;
  std::FILE* file = std::fopen(path.c_str(), "r");
  if (file == nullptr) return -1;
  int number = -1;
  if (std::fscanf(file, "%d", &number) != 1) number = -1;
  std::fclose(file);
  return number;
}

int count_linux_cores() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return 0;
  std::set<std::pair<int, int>> cores;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &allowed)) continue;
    const int core = read_topology(cpu, "core_id");
    if (core < 0) return CPU_COUNT(&allowed);
    cores.emplace(read_topology(cpu, "physical_package_id"), core);
  }
  return static_cast<int>(cores.size());
}
#endif

}  // namespace

int physical_core_count() {
  int count = 0;
#ifdef __linux__
  count = count_linux_cores();
#endif
  if (count <= 0) count = static_cast<int>(std::thread::hardware_concurrency());
  return std::max(count, 1);
}

}  // namespace edgewise::platform
