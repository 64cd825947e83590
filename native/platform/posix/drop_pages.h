#pragma once

#include <cstddef>

namespace edgewise::platform {

// Private anonymous pages that were mapped by mmap() are zeros when they are touched next, and take
// no memory until then. False if the system does not do that: they are as they were.
bool drop_pages(void* data, size_t bytes);

}  // namespace edgewise::platform
