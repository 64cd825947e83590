#include "platform/posix/drop_pages.h"

#include <sys/mman.h>

namespace edgewise::platform {

bool drop_pages(void* data, size_t bytes) { return madvise(data, bytes, MADV_DONTNEED) == 0; }

}  // namespace edgewise::platform
