#include <cstring>

#include "platform/apple/sysctl.h"
#include "platform/posix/boot.h"

namespace edgewise::platform {

Boot read_boot() {
  Boot result = {'?'};
  char text[37] = {};  // with the zero that ends it
  size_t bytes = sizeof(text);
  if (sysctlbyname("kern.bootsessionuuid", text, &bytes, nullptr, 0) == 0 &&
      bytes == sizeof(text)) {
    std::memcpy(result.data(), text, sizeof(text));
  }
  return result;
}

}  // namespace edgewise::platform
