#include "platform/open_library.h"

#include <dlfcn.h>

namespace edgewise::platform {

Result<LibraryEntry> open_library(const std::string& path, const char* function) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return error(Code::kNotFound, "%s", dlerror());
  return LibraryEntry{dlsym(library, function)};
}

}  // namespace edgewise::platform
