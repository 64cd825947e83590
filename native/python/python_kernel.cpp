#include "python_kernel.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "array_view.h"
#include "edgewise/kernel.h"
#include "errors.h"
#include "outputs.h"

namespace nb = nanobind;

namespace edgewise::python {
namespace {

// The arguments that the call writes: those that are its returned value, the last one, or items
// of it.
std::vector<Value*> outputs_of(Value* returned) {
  const TensorList* list = returned->get<TensorList>();
  return list != nullptr ? list->items : std::vector<Value*>{returned};
}

class PythonKernel {
 public:
  // Never released: the registry may be torn down when there is no interpreter any more.
  PythonKernel(std::string name, nb::callable function)
      : name_(std::move(name)), function_(function.release().ptr()) {}

  Status operator()(KernelContext& context) const {
    if (context.size() == 0) {
      return context.fail(Code::kInvalidProgram, "a call must have a returned value; got none");
    }
    nb::gil_scoped_acquire acquire;
    try {
      return run(context);
    } catch (nb::python_error& error) {
      Status status = failure(describe(error));
      keep_exception(error);
      return status;
    } catch (const std::exception& error) {
      return failure(error.what());
    }
  }

 private:
  Status failure(const std::string& what) const {
    return Status(Code::kInternal, "[" + name_ + "] the Python kernel failed; got " + what);
  }

  Status run(KernelContext& context) const {
    const size_t count = context.size() - 1;
    const std::vector<Value*> outputs = outputs_of(context.value(count));
    nb::list given;
    std::vector<nb::object> arrays(outputs.size());
    for (size_t i = 0; i < count; ++i) {
      Value* value = context.value(i);
      if (!context.ok()) return context.status();
      nb::object object = read(*value);
      given.append(object);
      const auto found = std::ranges::find(outputs, value);
      if (found != outputs.end()) arrays[static_cast<size_t>(found - outputs.begin())] = object;
    }
    nb::object result =
        nb::steal(PyObject_CallObject(function_, nb::steal(PySequence_Tuple(given.ptr())).ptr()));
    if (!result.is_valid()) throw nb::python_error();
    if (!result.is_none()) {
      const bool several = nb::isinstance<nb::tuple>(result) || nb::isinstance<nb::list>(result);
      const size_t found = several ? nb::len(result) : 1;
      if (found != outputs.size()) {
        return context.fail(Code::kInvalidArgument,
                            "a Python kernel returns None or its %zu outputs; got %zu",
                            outputs.size(), found);
      }
      for (size_t i = 0; i < outputs.size(); ++i) arrays[i] = several ? result[i] : result;
    }
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (outputs[i] == nullptr || !arrays[i].is_valid()) continue;
      EDGEWISE_RETURN_IF_ERROR(write(arrays[i], i, *outputs[i]));
    }
    return context.status();
  }

  // A copy, which Python may keep; zeros for an output without memory yet.
  static nb::object read(const Value& value) {
    const Tensor* tensor = value.get<Tensor>();
    if (tensor != nullptr && tensor->data<void>() == nullptr && tensor->nbytes() != 0) {
      ArrayMemory memory = allocate_array(tensor->nbytes());
      if (memory) std::fill_n(static_cast<std::byte*>(memory.get()), tensor->nbytes(), std::byte{});
      return to_array(*tensor, std::move(memory));
    }
    return to_python(value);
  }

  Status write(nb::handle result, size_t index, Value& target) const {
    const std::string where = "[" + name_ + "] output " + std::to_string(index);
    Tensor* tensor = target.get<Tensor>();
    if (tensor == nullptr || !tensor->is_writable()) {
      return Status(
          Code::kInvalidProgram,
          where + " must go to a tensor that can be written; got " + std::string(target.kind()));
    }
    return store_array(result, where, Code::kInvalidArgument, tensor);
  }

  std::string name_;
  PyObject* function_;
};

}  // namespace

void register_python_kernel(const std::string& name, nb::callable function) {
  raise_if_error(register_kernel({name, 0, PythonKernel(name, std::move(function))}));
}

}  // namespace edgewise::python
