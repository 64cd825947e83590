// Packed weights are not kept on disk: files there cannot be replaced while others map them.
#include "platform/file_cache.h"

namespace edgewise::platform {

std::unique_ptr<FileCache> open_cache(const CacheOptions& options, std::vector<CacheSource>) {
  options.warn("[cache] '" + options.folder +
               "' cannot be used on Windows; packed weights are not kept");
  return nullptr;
}

}  // namespace edgewise::platform
