// Kernels in a shared library of their own, which a running program loads: for operators of
// `torch.library` that edgewise does not know.
//
//   #include "edgewise/kernel_library.h"
//
//   static edgewise::Status scale_out(edgewise::KernelContext& context) {
//     const edgewise::Tensor* x = context.tensor(0);
//     ...
//   }
//   EDGEWISE_REGISTER_KERNEL("my_ns::scale.out", 3, scale_out)
//
// built with `edgewise_add_kernel_library(my_ops my_ops.cpp)` after find_package(edgewise), and
// loaded by `edgewise.runtime.load_kernels("libmy_ops.so")` in Python, or by
// `edgewise::load_kernel_library(path)` of edgewise/program.h in C++, `edgewise_load_kernels(path)`
// in C, or `edgewise_run --kernels`.
//
// The library links its own copy of the runtime's core; only the kernels' functions are handed
// to the program, through one C function. Both sides compare a version and the layout of the
// types that kernels see, so that a library of another release or compiler is refused.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "edgewise/kernel.h"
#include "edgewise/library_layout.h"

namespace edgewise {

// Raised when a type that kernels see, or the function below, changes its meaning.
inline constexpr uint32_t kKernelLibraryVersion = 1;

// Sizes of the types that cross the border.
constexpr uint32_t kernel_library_layout() {
  return library_layout_of({sizeof(KernelContext), sizeof(Value), sizeof(Tensor), sizeof(Status),
                            sizeof(std::string), sizeof(Scalar), alignof(Value)});
}

// The program's side, for the library to add its kernels to.
struct KernelLibraryHost {
  uint32_t version;
  uint32_t layout;
  void* self;
  void (*add)(void* self, const char* name, size_t argument_count, KernelFunction function);
};

struct LibraryKernel {
  const char* name;
  size_t argument_count;
  KernelFunction function;
};

// The kernels of this library.
inline std::vector<LibraryKernel>& library_kernels() {
  static std::vector<LibraryKernel> kernels;
  return kernels;
}

struct LibraryKernelRegistration {
  LibraryKernelRegistration(const char* name, size_t argument_count, KernelFunction function) {
    library_kernels().push_back({name, argument_count, function});
  }
};

}  // namespace edgewise

// The one function that a library exports. 0: the kernels were handed over; else the library's
// own version (1 upwards), or -1 if only the layout differs.
#define EDGEWISE_KERNEL_LIBRARY_ENTRY "edgewise_kernel_library"
#ifndef EDGEWISE_LIBRARY_HOST  // the program's side has none
extern "C" __attribute__((visibility("default"), used)) inline int edgewise_kernel_library(
    const edgewise::KernelLibraryHost* host) {
  if (host->version != edgewise::kKernelLibraryVersion) {
    return static_cast<int>(edgewise::kKernelLibraryVersion);
  }
  if (host->layout != edgewise::kernel_library_layout()) return -1;
  for (const edgewise::LibraryKernel& kernel : edgewise::library_kernels()) {
    host->add(host->self, kernel.name, kernel.argument_count, kernel.function);
  }
  return 0;
}
#endif

// name: of the out-variant, "my_ns::scale.out". argument_count: of its schema, outs included.
#define EDGEWISE_REGISTER_KERNEL(name, argument_count, function)          \
  static const ::edgewise::LibraryKernelRegistration EDGEWISE_JOIN_NAMES( \
      edgewise_kernel_, __COUNTER__)(name, argument_count, function);
