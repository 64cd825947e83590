// Shared libraries of kernels or backends that a running program loads.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "edgewise/status.h"

namespace edgewise {

// What sets one kind of library apart.
struct LibraryKind {
  const char* where;  // of messages: "load_kernels"
  const char* entry;  // the C function that it exports
  const char* header;
  const char* macro;  // which registers what the library has
  uint32_t version;
};

// Loads the library and gives the address of its entry function. It is never unloaded: programs
// keep pointers to its functions.
Result<void*> open_library(const LibraryKind& kind, const std::string& path);

// A failure unless the entry function's `answer` is 0 and it handed over something, under `names`
// that are all new. `is_taken`: whether one is registered.
Status check_handed_over(const LibraryKind& kind, const std::string& path, int answer,
                         std::vector<std::string> names, bool (*is_taken)(std::string_view name));

}  // namespace edgewise
