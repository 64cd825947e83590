// What there is nothing of without an operating system: files, libraries, further CPUs.
#include "platform/cpu_count.h"
#include "platform/file_cache.h"
#include "platform/mapped_file.h"
#include "platform/open_library.h"

namespace edgewise::platform {

int physical_core_count() { return 1; }

Result<std::shared_ptr<const MappedFile>> map_file(const std::string& path, size_t) {
  return error(Code::kUnsupported,
               "[load] files need an operating system; got '%s'; try load_in_place", path.c_str());
}

std::unique_ptr<FileCache> open_cache(const CacheOptions&, std::vector<CacheSource>) {
  return nullptr;
}

Result<LibraryEntry> open_library(const std::string&, const char*) {
  return error(Code::kUnsupported, "a program without an operating system");
}

}  // namespace edgewise::platform
