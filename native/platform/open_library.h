// Shared libraries that a running program loads.
#pragma once

#include <string>

#include "edgewise/status.h"

namespace edgewise::platform {

struct LibraryEntry {
  void* address = nullptr;  // of the function; null if the library does not export it
};

// Loads a library for the life of the process and looks up a function of it. A failure says why it
// does not load, without its place.
Result<LibraryEntry> open_library(const std::string& path, const char* function);

}  // namespace edgewise::platform
