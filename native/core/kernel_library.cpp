#define EDGEWISE_LIBRARY_HOST
#include "edgewise/kernel_library.h"

#include "edgewise/program.h"
#include "shared_library.h"

namespace edgewise {

namespace {

constexpr LibraryKind kKind{"load_kernels", EDGEWISE_KERNEL_LIBRARY_ENTRY,
                            "edgewise/kernel_library.h", "EDGEWISE_REGISTER_KERNEL",
                            kKernelLibraryVersion};

void add(void* self, const char* name, size_t argument_count, KernelFunction function) {
  static_cast<std::vector<Kernel>*>(self)->push_back({name, argument_count, function});
}

}  // namespace

Result<std::vector<std::string>> load_kernel_library(const std::string& path) {
  const Result<void*> entry = open_library(kKind, path);
  if (!entry) return entry.status();
  std::vector<Kernel> kernels;
  const KernelLibraryHost host{kKind.version, kernel_library_layout(), &kernels, add};
  const int answer = reinterpret_cast<int (*)(const KernelLibraryHost*)>(*entry)(&host);
  std::vector<std::string> names;
  for (const Kernel& kernel : kernels) names.push_back(kernel.name);
  EDGEWISE_RETURN_IF_ERROR(check_handed_over(kKind, path, answer, names, [](std::string_view name) {
    return find_kernel(name) != nullptr;
  }));
  for (Kernel& kernel : kernels) EDGEWISE_RETURN_IF_ERROR(register_kernel(std::move(kernel)));
  return names;
}

}  // namespace edgewise
