#include <map>

#include "edgewise/backend.h"
#include "platform/mutex.h"

namespace edgewise {

namespace {

struct Registry {
  platform::Mutex mutex;
  std::map<std::string, std::shared_ptr<Backend>, std::less<>> backends;
};

// As for kernels: made on first use, never destroyed.
Registry& registry() {
  static Registry* instance = new Registry;
  return *instance;
}

}  // namespace

Status register_backend(std::string id, std::shared_ptr<Backend> backend) {
  if (id.empty() || backend == nullptr) {
    return error(Code::kInvalidArgument, "[register_backend] a backend needs an id and an object");
  }
  Registry& all = registry();
  std::lock_guard lock(all.mutex);
  if (!all.backends.try_emplace(id, std::move(backend)).second) {
    return error(Code::kInvalidArgument,
                 "[register_backend] an id is registered once; got '%s' again", id.c_str());
  }
  return Status::ok_status();
}

std::shared_ptr<Backend> find_backend(std::string_view id) {
  Registry& all = registry();
  std::lock_guard lock(all.mutex);
  const auto found = all.backends.find(id);
  return found == all.backends.end() ? nullptr : found->second;
}

std::vector<std::string> backend_names() {
  Registry& all = registry();
  std::lock_guard lock(all.mutex);
  std::vector<std::string> names;
  for (const auto& [id, backend] : all.backends) names.push_back(id);
  return names;
}

}  // namespace edgewise
