#include "platform/posix/sync_file.h"

#include <unistd.h>

namespace edgewise::platform {

int sync_file(int file) { return fsync(file); }

}  // namespace edgewise::platform
