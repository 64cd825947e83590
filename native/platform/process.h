// What the system says of this process, and of the machine's memory.
#pragma once

#include <cstddef>

namespace edgewise::platform {

// Of the machine, in bytes; 0 if the system does not tell.
size_t physical_memory();
// The most memory that the process had, in bytes.
size_t peak_memory();
// How often the process was forked, from the first call on, counted in each child: threads are not
// forked.
unsigned fork_count();

}  // namespace edgewise::platform
