// The extension edgewise.runtime._native: programs and methods of the native runtime.
// Its Python side is src/edgewise/runtime; its types are in _native.pyi there.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <span>
#include <string>
#include <utility>

#include "core/cpu_level.h"
#include "edgewise/backend.h"
#include "edgewise/kernel.h"
#include "edgewise/program.h"
#include "errors.h"
#include "method.h"
#include "profile.h"
#include "python_backend.h"
#include "python_kernel.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace edgewise::python {
namespace {

nb::list to_texts(const std::vector<std::string>& names) {
  nb::list list;
  for (const std::string& name : names) list.append(to_text(name));
  return list;
}

// Methods that share their state, and take turns.
struct SessionFace {
  std::shared_ptr<Session> session;
  std::shared_ptr<SessionLock> lock = std::make_shared<SessionLock>();
};

// A loaded program. The C++ object is shared with the methods made from it.
class ProgramFace {
 public:
  explicit ProgramFace(std::shared_ptr<Program> program) : program_(std::move(program)) {}

  nb::list method_names() const { return to_texts(program_->method_names()); }
  size_t size_bytes() const { return program_->size_bytes(); }

  MethodInfo method_info(const std::string& name) const {
    return value_or_raise(program_->method_info(name));
  }

  SessionFace new_session() { return SessionFace{value_or_raise(program_->new_session())}; }

  std::unique_ptr<MethodFace> load_method(const std::string& name, const SessionFace& session) {
    forget_exception();
    auto method = [&] {
      nb::gil_scoped_release release;
      return program_->load_method(name, session.session);
    }();
    return std::make_unique<MethodFace>(value_or_raise(std::move(method)), session.lock);
  }

 private:
  std::shared_ptr<Program> program_;
};

// May be called by any thread, with the interpreter's lock or without.
void warn(const std::string& message) {
  const nb::gil_scoped_acquire acquire;
  // A warning that is an error here has nobody to be raised to.
  if (PyErr_WarnEx(PyExc_RuntimeWarning, message.c_str(), 1) != 0) PyErr_WriteUnraisable(nullptr);
}

LoadOptions make_options(int verification, int threads, bool own_kernels, size_t max_memory,
                         const std::vector<std::string>& data_files, nb::bytes cache_dir,
                         size_t cache_bytes) {
  LoadOptions options;
  options.cache_dir = std::string(cache_dir.c_str(), cache_dir.size());
  options.cache_bytes = cache_bytes;
  options.warn = warn;
  options.data_files = data_files;
  options.verification = static_cast<Verification>(verification);  // numbered as in _program.py
  options.threads = threads;
  options.own_kernels = own_kernels;
  options.max_memory = max_memory;
  return options;
}

std::vector<std::string> to_paths(const nb::list& paths) {
  std::vector<std::string> result;
  for (nb::handle path : paths) {
    const auto bytes = nb::cast<nb::bytes>(path);
    result.emplace_back(bytes.c_str(), bytes.size());
  }
  return result;
}

ProgramFace load_file(nb::bytes path, int verification, int threads, bool own_kernels,
                      size_t max_memory, nb::list data_files, nb::bytes cache_dir,
                      size_t cache_bytes) {
  forget_exception();
  const std::string name(path.c_str(), path.size());
  const LoadOptions options = make_options(verification, threads, own_kernels, max_memory,
                                           to_paths(data_files), std::move(cache_dir), cache_bytes);
  auto program = [&] {
    nb::gil_scoped_release release;
    return Program::load_file(name, options);
  }();
  return ProgramFace(value_or_raise(std::move(program)));
}

// A contiguous buffer of another object, which cannot be resized while this lives.
class BufferLock {
 public:
  explicit BufferLock(nb::handle object) {
    if (PyObject_GetBuffer(object.ptr(), &buffer_, PyBUF_SIMPLE) != 0) throw nb::python_error();
  }
  ~BufferLock() { PyBuffer_Release(&buffer_); }
  BufferLock(const BufferLock&) = delete;
  BufferLock& operator=(const BufferLock&) = delete;

  std::span<const std::byte> bytes() const {
    return {static_cast<const std::byte*>(buffer_.buf), static_cast<size_t>(buffer_.len)};
  }

 private:
  Py_buffer buffer_{};
};

ProgramFace load_bytes(nb::handle data, int verification, int threads, bool own_kernels,
                       size_t max_memory, nb::list data_files, nb::bytes cache_dir,
                       size_t cache_bytes) {
  forget_exception();
  const BufferLock buffer(data);
  const LoadOptions options = make_options(verification, threads, own_kernels, max_memory,
                                           to_paths(data_files), std::move(cache_dir), cache_bytes);
  auto program = [&] {
    nb::gil_scoped_release release;
    return Program::load_bytes(buffer.bytes(), options);
  }();
  return ProgramFace(value_or_raise(std::move(program)));
}

nb::list load_kernels(nb::bytes path) {
  return to_texts(value_or_raise(load_kernel_library(std::string(path.c_str(), path.size()))));
}

nb::list load_backends(nb::bytes path) {
  return to_texts(value_or_raise(load_backend_library(std::string(path.c_str(), path.size()))));
}

bool is_backend_available(const std::string& name) {
  const std::shared_ptr<Backend> backend = find_backend(name);
  return backend && backend->is_available();
}

void bind_info(nb::module_& module) {
  nb::class_<ValueInfo>(module, "ValueInfo")
      .def_ro("kind", &ValueInfo::kind)
      .def_prop_ro("scalar_type", [](const ValueInfo& info) { return static_cast<int>(info.type); })
      .def_prop_ro("scalar_type_name",
                   [](const ValueInfo& info) { return std::string(to_string(info.type)); })
      .def_ro("sizes", &ValueInfo::sizes)
      .def_ro("dim_order", &ValueInfo::dim_order)
      .def_prop_ro("dynamism",
                   [](const ValueInfo& info) { return static_cast<int>(info.dynamism); })
      .def_ro("nbytes", &ValueInfo::nbytes);
  nb::class_<DelegateInfo>(module, "DelegateInfo")
      .def_prop_ro("backend", [](const DelegateInfo& info) { return to_text(info.backend); })
      .def_ro("payload_bytes", &DelegateInfo::payload_bytes);
  nb::class_<MethodInfo>(module, "MethodInfo")
      .def_prop_ro("name", [](const MethodInfo& info) { return to_text(info.name); })
      .def_ro("inputs", &MethodInfo::inputs)
      .def_ro("outputs", &MethodInfo::outputs)
      .def_prop_ro("attributes",
                   [](const MethodInfo& info) {
                     nb::dict found;
                     for (const AttributeInfo& one : info.attributes)
                       found[to_text(one.name)] = one.value;
                     return found;
                   })
      .def_ro("planned_memory", &MethodInfo::planned_memory)
      .def_ro("delegates", &MethodInfo::delegates)
      .def_prop_ro("operators", [](const MethodInfo& info) { return to_texts(info.operators); })
      .def_ro("instruction_count", &MethodInfo::instruction_count)
      .def_prop_ro("input_spec", [](const MethodInfo& info) { return to_text(info.input_spec); })
      .def_prop_ro("output_spec", [](const MethodInfo& info) { return to_text(info.output_spec); });
}

}  // namespace

NB_MODULE(_native, module) {
  // Programs that live in globals until the process ends are no leak worth a message.
  nb::set_leak_warnings(false);

  bind_info(module);
  bind_profile(module);
  nb::class_<MethodFace>(module, "Method")
      .def_prop_ro("info", [](const MethodFace& method) { return method.info(); })
      .def("execute", nb::overload_cast<nb::handle>(&MethodFace::execute), "inputs"_a)
      .def("profile", &MethodFace::profile, "inputs"_a)
      .def("delegate_operations", &MethodFace::delegate_operations)
      .def("attribute", &MethodFace::attribute, "name"_a)
      .def("reset", &MethodFace::reset);
  nb::class_<SessionFace>(module, "Session");
  nb::class_<ProgramFace>(module, "Program")
      .def_prop_ro("method_names", &ProgramFace::method_names)
      .def_prop_ro("size_bytes", &ProgramFace::size_bytes)
      .def("method_info", &ProgramFace::method_info, "name"_a)
      .def("new_session", &ProgramFace::new_session)
      .def("load_method", &ProgramFace::load_method, "name"_a, "session"_a);
  module.def("load_file", &load_file, "path"_a, "verification"_a, "threads"_a, "own_kernels"_a,
             "max_memory"_a, "data_files"_a, "cache_dir"_a, "cache_bytes"_a);
  module.def("load_bytes", &load_bytes, "data"_a, "verification"_a, "threads"_a, "own_kernels"_a,
             "max_memory"_a, "data_files"_a, "cache_dir"_a, "cache_bytes"_a);
  module.def("cpu_level", [] { return cpu_level().name; });
  module.def("cpu_levels", [] {
    std::vector<std::string> names;
    for (const CpuLevel& level : cpu_levels()) names.emplace_back(level.name);
    return names;
  });
  module.def("backend_names", &backend_names);
  module.def("is_backend_available", &is_backend_available, "name"_a);
  module.def("operator_names", &kernel_names);
  module.def("register_backend", &register_python_backend, "name"_a, "factory"_a);
  module.def("register_kernel", &register_python_kernel, "name"_a, "function"_a);
  module.def("load_kernels", &load_kernels, "path"_a);
  module.def("load_backends", &load_backends, "path"_a);
}

}  // namespace edgewise::python
