#define EDGEWISE_KERNEL_LIBRARY_HOST
#include "edgewise/kernel_library.h"

#include <dlfcn.h>

#include "edgewise/program.h"

namespace edgewise {

namespace {

void add(void* self, const char* name, size_t argument_count, KernelFunction function) {
  static_cast<std::vector<Kernel>*>(self)->push_back({name, argument_count, function});
}

}  // namespace

Result<std::vector<std::string>> load_kernel_library(const std::string& path) {
  // Never closed: methods keep pointers to its functions.
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return error(Code::kNotFound, "[load_kernels] a library must load; got %s", dlerror());
  }
  using Entry = int (*)(const KernelLibraryHost*);
  const auto entry = reinterpret_cast<Entry>(dlsym(library, EDGEWISE_KERNEL_LIBRARY_ENTRY));
  if (entry == nullptr) {
    return error(Code::kInvalidArgument,
                 "[load_kernels] a library must export %s; got none in %s; try including "
                 "edgewise/kernel_library.h and EDGEWISE_REGISTER_KERNEL",
                 EDGEWISE_KERNEL_LIBRARY_ENTRY, path.c_str());
  }
  std::vector<Kernel> kernels;
  const KernelLibraryHost host{kKernelLibraryVersion, kernel_library_layout(), &kernels, add};
  const int answer = entry(&host);
  if (answer != 0) {
    return error(Code::kUnsupported,
                 "[load_kernels] a library must be built for version %u of the interface%s; got "
                 "%s; try building it against the headers of this release with the same compiler",
                 kKernelLibraryVersion, answer < 0 ? ", its types laid out alike" : "",
                 path.c_str());
  }
  for (const Kernel& kernel : kernels) {
    if (find_kernel(kernel.name) != nullptr) {
      return error(Code::kInvalidArgument,
                   "[load_kernels] a name is registered once; got '%s' again from %s",
                   kernel.name.c_str(), path.c_str());
    }
  }
  std::vector<std::string> names;
  for (Kernel& kernel : kernels) {
    names.push_back(kernel.name);
    EDGEWISE_RETURN_IF_ERROR(register_kernel(std::move(kernel)));
  }
  return names;
}

}  // namespace edgewise
