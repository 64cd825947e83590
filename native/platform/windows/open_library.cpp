#include "platform/open_library.h"

#include "platform/windows/api.h"

namespace edgewise::platform {

Result<LibraryEntry> open_library(const std::string& path, const char* function) {
  // What it needs is looked for beside it, too.
  const HMODULE library =
      LoadLibraryExW(windows::wide(path).c_str(), nullptr,
                     LOAD_LIBRARY_SEARCH_DLL_LOAD_DIR | LOAD_LIBRARY_SEARCH_DEFAULT_DIRS);
  if (library == nullptr) {
    return error(Code::kNotFound, "%s", windows::describe(GetLastError()).c_str());
  }
  return LibraryEntry{reinterpret_cast<void*>(GetProcAddress(library, function))};
}

}  // namespace edgewise::platform
