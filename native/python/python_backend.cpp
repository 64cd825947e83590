#include "python_backend.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstring>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "array_view.h"
#include "edgewise/backend.h"
#include "errors.h"
#include "outputs.h"

namespace nb = nanobind;

namespace edgewise::python {
namespace {

nb::bytes to_bytes(std::span<const std::byte> bytes) {
  return nb::bytes(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

Status failure(const std::string& id, nb::python_error& error) {
  Status status(Code::kBackend, "[" + id + "] the Python backend failed; got " + describe(error));
  keep_exception(error);
  return status;
}

Status failure(const std::string& id, const std::exception& error) {
  return Status(Code::kBackend, "[" + id + "] the Python backend failed; got " + error.what());
}

// The program's named data for as long as the delegate lives; Python may keep its reader
// for longer.
struct NamedDataLink {
  const NamedData* data;
};

class PythonDelegate : public Delegate {
 public:
  PythonDelegate(std::string id, std::shared_ptr<NamedDataLink> link, nb::object run)
      : id_(std::move(id)), link_(std::move(link)), run_(run.release().ptr()) {}

  ~PythonDelegate() override {
    if (!Py_IsInitialized()) return;
    nb::gil_scoped_acquire acquire;
    link_->data = nullptr;
    Py_DECREF(run_);
  }

  Status execute(std::span<Value* const> arguments) override { return run(arguments, nullptr); }

  Status execute_profiled(std::span<Value* const> arguments, RunProfile& profile) override {
    return run(arguments, &profile);
  }

 private:
  Status run(std::span<Value* const> arguments, RunProfile* profile) {
    nb::gil_scoped_acquire acquire;
    try {
      nb::list given;
      for (const Value* value : arguments) given.append(read(*value));
      nb::object results = nb::steal(PySequence_Fast(call(given, profile).ptr(),
                                                     "a backend must return a sequence of arrays"));
      if (!results.is_valid()) throw nb::python_error();
      const size_t count = nb::len(results);
      if (count > arguments.size()) {
        return edgewise::error(Code::kBackend,
                               "[%s] a call takes %zu arguments in all; got %zu outputs",
                               id_.c_str(), arguments.size(), count);
      }
      const size_t inputs = arguments.size() - count;
      for (size_t i = 0; i < count; ++i) {
        EDGEWISE_RETURN_IF_ERROR(write(results[i], i, *arguments[inputs + i]));
      }
      return Status::ok_status();
    } catch (nb::python_error& error) {
      return failure(id_, error);
    } catch (const std::exception& error) {
      return failure(id_, error);
    }
  }

  // A backend that says more has `run.profiled(arguments, record)`.
  nb::object call(nb::handle arguments, RunProfile* profile) {
    const nb::handle run(run_);
    if (profile == nullptr || !nb::hasattr(run, "profiled")) return run(arguments);
    // The backend may keep it for longer than the run.
    auto link = std::make_shared<RunProfile*>(profile);
    const nb::object record = nb::cpp_function(
        [link, id = id_](const std::string& name, int64_t begin, int64_t end,
                         const std::vector<uint32_t>& nodes, const nb::dict& counters) {
          if (*link == nullptr) {
            raise(Status(Code::kBackend, "[" + id +
                                             "] a part must be recorded while its delegate runs; "
                                             "got a call afterwards"));
          }
          ProfilePart part{.name = name, .nodes = nodes, .counters = {}};
          for (const auto& [key, value] : counters) {
            part.counters.emplace_back(nb::cast<std::string>(key), nb::cast<double>(value));
          }
          (*link)->add_part(std::move(part), begin, end);
        },
        nb::arg("name"), nb::arg("begin"), nb::arg("end"),
        nb::arg("nodes") = std::vector<uint32_t>(), nb::arg("counters") = nb::dict());
    struct Unlink {
      RunProfile** profile;
      ~Unlink() { *profile = nullptr; }
    } const unlink{link.get()};
    return run.attr("profiled")(arguments, record);
  }

  // A copy, or an array of no elements for an output without memory yet.
  static nb::object read(const Value& value) {
    const Tensor* tensor = value.get<Tensor>();
    if (tensor && tensor->data<void>() == nullptr && tensor->nbytes() > 0) return nb::none();
    return to_python(value);
  }

  Status write(nb::handle result, size_t index, Value& target) {
    const std::string where = "[" + id_ + "] output " + std::to_string(index);
    Tensor* tensor = target.get<Tensor>();
    if (tensor == nullptr) {
      return Status(Code::kBackend, where + " must go to a tensor; got a value of kind " +
                                        std::string(target.kind()));
    }
    return store_array(result, where, Code::kBackend, tensor);
  }

  std::string id_;
  std::shared_ptr<NamedDataLink> link_;
  PyObject* run_;
};

class PythonBackend : public Backend {
 public:
  // Never released: the registry may be torn down when there is no interpreter any more.
  PythonBackend(std::string id, nb::callable factory)
      : id_(std::move(id)), factory_(factory.release().ptr()) {}

  Result<std::unique_ptr<Delegate>> init(const DelegateInit& init) override {
    nb::gil_scoped_acquire acquire;
    auto link = std::make_shared<NamedDataLink>(NamedDataLink{init.named_data});
    try {
      nb::dict specs;
      for (const CompileSpec& spec : init.compile_specs) {
        specs[nb::str(spec.key.data(), spec.key.size())] = to_bytes(spec.value);
      }
      nb::object named_data = nb::cpp_function([link, id = id_](const std::string& key) {
        if (link->data == nullptr) {
          raise(Status(Code::kBackend, "[" + id +
                                           "] named data must be read while the program is "
                                           "loaded; got a call afterwards"));
        }
        return to_bytes(value_or_raise(link->data->find(key)));
      });
      nb::object run = nb::handle(factory_)(to_bytes(init.payload), specs, named_data);
      if (!PyCallable_Check(run.ptr())) {
        link->data = nullptr;
        return Status(
            Code::kBackend,
            "[" + id_ + "] a backend's factory must return a callable; got " + class_of(run));
      }
      return std::unique_ptr<Delegate>(
          std::make_unique<PythonDelegate>(id_, std::move(link), std::move(run)));
    } catch (nb::python_error& error) {
      link->data = nullptr;
      return failure(id_, error);
    } catch (const std::exception& error) {
      link->data = nullptr;
      return failure(id_, error);
    }
  }

 private:
  std::string id_;
  PyObject* factory_;
};

}  // namespace

void register_python_backend(const std::string& id, nb::callable factory) {
  raise_if_error(register_backend(id, std::make_shared<PythonBackend>(id, std::move(factory))));
}

}  // namespace edgewise::python
