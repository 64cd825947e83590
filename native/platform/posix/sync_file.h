#pragma once

namespace edgewise::platform {

// Waits until what was written to an open file is on the disk; 0, or -1 and errno, as fsync().
int sync_file(int file);

}  // namespace edgewise::platform
