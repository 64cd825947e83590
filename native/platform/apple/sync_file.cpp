#include "platform/posix/sync_file.h"

#include <fcntl.h>
#include <unistd.h>

namespace edgewise::platform {

// There fsync() ends when the drive has the data, which may lie in its memory. Not every file
// system can ask for more.
int sync_file(int file) { return fcntl(file, F_FULLFSYNC) == 0 ? 0 : fsync(file); }

}  // namespace edgewise::platform
