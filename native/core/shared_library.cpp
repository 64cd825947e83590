#include "shared_library.h"

#include <algorithm>

#include "platform/open_library.h"

namespace edgewise {

Result<void*> open_library(const LibraryKind& kind, const std::string& path) {
  const Result<platform::LibraryEntry> entry = platform::open_library(path, kind.entry);
  if (!entry) {
    return error(entry.status().code(), "[%s] a library must load; got %s", kind.where,
                 entry.status().message().c_str());
  }
  if (entry->address == nullptr) {
    return error(Code::kInvalidArgument,
                 "[%s] a library must export %s; got none in %s; try including %s and %s",
                 kind.where, kind.entry, path.c_str(), kind.header, kind.macro);
  }
  return entry->address;
}

Status check_handed_over(const LibraryKind& kind, const std::string& path, int answer,
                         std::vector<std::string> names, bool (*is_taken)(std::string_view name)) {
  if (answer != 0) {
    const std::string found = answer < 0 ? "other layouts" : "version " + std::to_string(answer);
    return error(Code::kUnsupported,
                 "[%s] a library must be built for version %u of the interface, with its types "
                 "laid out alike; got %s in %s; try building it against the headers of this "
                 "release with the same compiler",
                 kind.where, kind.version, found.c_str(), path.c_str());
  }
  if (names.empty()) {
    return error(Code::kInvalidArgument,
                 "[%s] a library must register something; got nothing in %s; try %s of %s",
                 kind.where, path.c_str(), kind.macro, kind.header);
  }
  std::ranges::sort(names);
  for (size_t i = 0; i < names.size(); ++i) {
    if (!is_taken(names[i]) && (i == 0 || names[i] != names[i - 1])) continue;
    return error(Code::kInvalidArgument, "[%s] a name is registered once; got '%s' again from %s",
                 kind.where, names[i].c_str(), path.c_str());
  }
  return Status::ok_status();
}

}  // namespace edgewise
