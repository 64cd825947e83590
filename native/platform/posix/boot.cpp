#include "platform/posix/boot.h"

#include <fcntl.h>

#include <cstring>

#include "platform/posix/file_descriptor.h"

namespace edgewise::platform {

Boot read_boot() {
  Boot result = {'?'};
  const FileDescriptor file(open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC));
  char text[36];
  if (file.get() >= 0 && read(file.get(), text, sizeof(text)) == sizeof(text)) {
    std::memcpy(result.data(), text, sizeof(text));
  }
  return result;
}

}  // namespace edgewise::platform
