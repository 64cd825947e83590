#include <map>

#include "edgewise/kernel.h"
#include "platform/log.h"
#include "platform/mutex.h"

namespace edgewise {

namespace {

struct Registry {
  platform::Mutex mutex;
  std::map<std::string, Kernel, std::less<>> kernels;  // nodes stay where they are
};

// Made on first use, since registrations run before main in any order, and never
// destroyed, since methods may outlive other statics.
Registry& registry() {
  static Registry* instance = new Registry;
  return *instance;
}

}  // namespace

Status register_kernel(Kernel kernel) {
  if (kernel.name.empty() || kernel.function == nullptr) {
    return error(Code::kInvalidArgument, "[register_kernel] a kernel needs a name and a function");
  }
  Registry& all = registry();
  std::lock_guard lock(all.mutex);
  std::string name = kernel.name;
  if (!all.kernels.try_emplace(name, std::move(kernel)).second) {
    return error(Code::kInvalidArgument,
                 "[register_kernel] a name is registered once; got '%s' again", name.c_str());
  }
  return Status::ok_status();
}

const Kernel* find_kernel(std::string_view name) {
  Registry& all = registry();
  std::lock_guard lock(all.mutex);
  const auto found = all.kernels.find(name);
  return found == all.kernels.end() ? nullptr : &found->second;
}

std::vector<std::string> kernel_names() {
  Registry& all = registry();
  std::lock_guard lock(all.mutex);
  std::vector<std::string> names;
  for (const auto& [name, kernel] : all.kernels) names.push_back(name);
  return names;
}

KernelRegistration::KernelRegistration(const char* name, size_t argument_count,
                                       KernelFunction function) {
  const Status status = register_kernel({name, argument_count, function});
  // Nobody to return it to: the first registration stays, and the mistake is seen.
  if (!status.ok()) platform::log(status.message().c_str());
}

}  // namespace edgewise
