// Files that are written whole or not at all.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <span>
#include <string>

#include "edgewise/status.h"

namespace edgewise::platform {

// Writes the parts, one after the other, to a file beside `path` that takes its place when all of
// it is on the disk: a failure leaves what was there. Devices and pipes are written as they are.
Status write_whole(const std::string& path,
                   std::initializer_list<std::span<const std::byte>> parts);

}  // namespace edgewise::platform
