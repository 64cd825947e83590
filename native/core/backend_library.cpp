#define EDGEWISE_LIBRARY_HOST
#include "edgewise/backend_library.h"

#include <utility>

#include "edgewise/program.h"
#include "shared_library.h"

namespace edgewise {

namespace {

constexpr LibraryKind kKind{"load_backends", EDGEWISE_BACKEND_LIBRARY_ENTRY,
                            "edgewise/backend_library.h", "EDGEWISE_REGISTER_BACKEND",
                            kBackendLibraryVersion};

using Found = std::vector<std::pair<std::string, std::shared_ptr<Backend>>>;

void add(void* self, const char* id, std::shared_ptr<Backend> backend) {
  static_cast<Found*>(self)->emplace_back(id, std::move(backend));
}

}  // namespace

Result<std::vector<std::string>> load_backend_library(const std::string& path) {
  const Result<void*> entry = open_library(kKind, path);
  if (!entry) return entry.status();
  Found found;
  const BackendLibraryHost host{kKind.version, backend_library_layout(), &found, add};
  const int answer = reinterpret_cast<int (*)(const BackendLibraryHost*)>(*entry)(&host);
  std::vector<std::string> ids;
  for (const auto& [id, backend] : found) ids.push_back(id);
  EDGEWISE_RETURN_IF_ERROR(check_handed_over(
      kKind, path, answer, ids, [](std::string_view id) { return find_backend(id) != nullptr; }));
  for (auto& [id, backend] : found) {
    EDGEWISE_RETURN_IF_ERROR(register_backend(id, std::move(backend)));
  }
  return ids;
}

}  // namespace edgewise
