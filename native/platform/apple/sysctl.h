// What the kernel tells by name; `sysctl -a` lists the names.
#pragma once

#include <sys/sysctl.h>

#include <cstddef>

namespace edgewise::platform::apple {

// A number; `otherwise` if this system or CPU does not know the name.
inline int read_number(const char* name, int otherwise) {
  int number = 0;
  size_t bytes = sizeof(number);
  const bool is_known = sysctlbyname(name, &number, &bytes, nullptr, 0) == 0;
  return is_known && bytes == sizeof(number) ? number : otherwise;
}

}  // namespace edgewise::platform::apple
