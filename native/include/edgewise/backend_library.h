// Backends in a shared library of their own, which a running program loads: for delegates of a
// device that edgewise does not know.
//
//   #include "edgewise/backend_library.h"
//
//   class MyBackend : public edgewise::Backend {
//     edgewise::Result<std::unique_ptr<edgewise::Delegate>> init(
//         const edgewise::DelegateInit& init) override {
//       ...
//     }
//   };
//   EDGEWISE_REGISTER_BACKEND("MyBackend", MyBackend)
//
// built with `edgewise_add_backend_library(my_backend my_backend.cpp)` after
// find_package(edgewise), and loaded by `edgewise.runtime.load_backends("libmy_backend.so")` in
// Python, `edgewise::load_backend_library(path)` of edgewise/program.h in C++,
// `edgewise_load_backends(path)` in C, or `edgewise_run --backends`.
//
// The library links its own copy of the runtime's core; only the backends are handed to the
// program, through one C function. Both sides compare a version and the layout of the types that
// backends see, so that a library of another release or compiler is refused. No exception may
// leave a backend or a delegate.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "edgewise/backend.h"
#include "edgewise/library_layout.h"
#include "edgewise/tensor.h"

namespace edgewise {

// Raised when a type that backends see (a virtual function more counts) or the function below
// changes its meaning.
inline constexpr uint32_t kBackendLibraryVersion = 2;

// Sizes of the types that cross the border.
constexpr uint32_t backend_library_layout() {
  return library_layout_of({sizeof(Backend), sizeof(Delegate), sizeof(DelegateInit),
                            sizeof(CompileSpec), sizeof(NamedData), sizeof(BackendProgramState),
                            sizeof(RunProfile), sizeof(ProfilePart), sizeof(Workers), sizeof(Value),
                            sizeof(Tensor), sizeof(Status), sizeof(std::string),
                            sizeof(std::shared_ptr<Backend>), alignof(Value)});
}

// The program's side, for the library to add its backends to.
struct BackendLibraryHost {
  uint32_t version;
  uint32_t layout;
  void* self;
  void (*add)(void* self, const char* id, std::shared_ptr<Backend> backend);
};

struct LibraryBackend {
  const char* id;
  std::shared_ptr<Backend> (*make)();
};

// The backends of this library.
inline std::vector<LibraryBackend>& library_backends() {
  static std::vector<LibraryBackend> backends;
  return backends;
}

struct LibraryBackendRegistration {
  LibraryBackendRegistration(const char* id, std::shared_ptr<Backend> (*make)()) {
    library_backends().push_back({id, make});
  }
};

}  // namespace edgewise

// The one function that a library exports for its backends. 0: they were handed over; else the
// library's own version (1 upwards), or -1 if only the layout differs.
#define EDGEWISE_BACKEND_LIBRARY_ENTRY "edgewise_backend_library"
#ifndef EDGEWISE_LIBRARY_HOST  // the program's side has none
extern "C" __attribute__((visibility("default"), used)) inline int edgewise_backend_library(
    const edgewise::BackendLibraryHost* host) {
  if (host->version != edgewise::kBackendLibraryVersion) {
    return static_cast<int>(edgewise::kBackendLibraryVersion);
  }
  if (host->layout != edgewise::backend_library_layout()) return -1;
  for (const edgewise::LibraryBackend& backend : edgewise::library_backends()) {
    host->add(host->self, backend.id, backend.make());
  }
  return 0;
}
#endif

// id: the delegates' backend in files, "MyBackend". type: a class of edgewise::Backend with a
// constructor without arguments.
#define EDGEWISE_REGISTER_BACKEND(id, type)                                                  \
  static const ::edgewise::LibraryBackendRegistration EDGEWISE_JOIN_NAMES(edgewise_backend_, \
                                                                          __COUNTER__)(      \
      id, []() -> std::shared_ptr<::edgewise::Backend> { return std::make_shared<type>(); });
