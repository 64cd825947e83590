#include "method.h"

#include <nanobind/stl/unique_ptr.h>

#include <numeric>
#include <optional>
#include <string>
#include <utility>

#include "errors.h"

namespace nb = nanobind;

namespace edgewise::python {

// An input that was read with the GIL and is given to the method without it.
struct MethodFace::Input {
  std::optional<ArrayView> array;
  Value value;  // where there is no array
};

// A call's exclusive use of the method and those of its session. Waits for others without the GIL.
class MethodFace::Turn {
 public:
  explicit Turn(const MethodFace& face) : lock_(*face.lock_) {
    if (lock_.user.load() == std::this_thread::get_id()) {
      raise(Status(Code::kInvalidArgument, "[execute] method '" + face.info().name +
                                               "' must not be used by a backend that it is "
                                               "running; got a call from within; try "
                                               "load_method() for a second instance"));
    }
    nb::gil_scoped_release release;
    lock_.mutex.lock();
    lock_.user.store(std::this_thread::get_id());
  }
  ~Turn() {
    lock_.user.store(std::thread::id());
    lock_.mutex.unlock();
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

 private:
  SessionLock& lock_;
};

namespace {

void check_writable(const ArrayView& array, const std::string& where) {
  if (!array.is_read_only && !array.overlaps()) return;
  refuse(where, std::string("is written by the method; got an array ") +
                    (array.is_read_only ? "that must not be written"
                                        : "whose elements share memory, as a broadcast one's") +
                    "; try a copy of it");
}

}  // namespace

MethodFace::MethodFace(std::unique_ptr<Method> method, std::shared_ptr<SessionLock> lock)
    : method_(std::move(method)), lock_(std::move(lock)) {
  method_->set_cancel_check(was_signalled);
  for (const ValueInfo& output : info().outputs) {
    may_bind_.push_back(output.kind == "Tensor" && output.dynamism == Dynamism::kStatic);
  }
}

MethodFace::~MethodFace() = default;

// Runs the handlers of signals that came meanwhile. Python runs them in its main thread only.
bool MethodFace::was_signalled() {
  nb::gil_scoped_acquire acquire;
  if (PyErr_CheckSignals() == 0) return false;
  nb::python_error exception;
  keep_exception(exception);
  return true;
}

nb::tuple MethodFace::profile(nb::handle sequence) {
  auto call = std::make_unique<CallProfile>();
  call->begin = profile_clock();
  nb::list outputs = execute(sequence, &call->run);
  call->end = profile_clock();
  return nb::make_tuple(std::move(outputs), std::move(call));
}

nb::list MethodFace::execute(nb::handle sequence, RunProfile* profile) {
  forget_exception();
  if (!PyList_Check(sequence.ptr()) && !PyTuple_Check(sequence.ptr())) {
    raise(Status(Code::kInvalidArgument,
                 "[execute] inputs must be a list or tuple, one item an input; got " +
                     class_of(sequence) + "; try [x]"));
  }
  const size_t count = nb::len(sequence);
  if (count != info().inputs.size()) {
    raise(error(Code::kInvalidArgument, "[execute] method '%s' takes %zu input%s; got %zu",
                info().name.c_str(), info().inputs.size(), info().inputs.size() == 1 ? "" : "s",
                count));
  }
  std::vector<Input> inputs;  // outlives the turn: releasing it may run Python code
  inputs.reserve(count);
  for (size_t i = 0; i < count; ++i) inputs.push_back(read_input(sequence[i], i));

  std::vector<ArrayMemory> bound(info().outputs.size());
  Turn turn(*this);
  Status status;
  {
    nb::gil_scoped_release release;
    status = run(inputs, bound, profile);
  }
  raise_if_error(status);
  nb::list outputs;
  for (size_t i = 0; i < bound.size(); ++i) {
    const Value* value = method_->output(i);
    if (value == nullptr) raise(error(Code::kInternal, "[execute] output %zu is missing", i));
    outputs.append(to_python(*value, std::move(bound[i])));
  }
  return outputs;
}

nb::list MethodFace::delegate_operations() {
  const Turn turn(*this);
  nb::list result;
  for (const auto& delegate : method_->delegate_operations()) {
    nb::list operations;
    for (const DelegateOperation& one : delegate) {
      nb::list nodes, refused;
      for (const uint32_t node : one.nodes) nodes.append(node);
      for (const auto& [kernel, rule] : one.refused) {
        refused.append(nb::make_tuple(kernel.c_str(), rule.c_str()));
      }
      operations.append(nb::make_tuple(one.operation.c_str(), one.sizes.c_str(), one.kernel.c_str(),
                                       nodes, refused));
    }
    result.append(operations);
  }
  return result;
}

nb::object MethodFace::attribute(const std::string& name) {
  Turn turn(*this);
  const Value* value = method_->attribute(name);
  if (value == nullptr) throw nb::key_error(name.c_str());
  return to_python(*value);
}

void MethodFace::reset() {
  forget_exception();
  Turn turn(*this);
  Status status;
  {
    nb::gil_scoped_release release;
    status = method_->reset();
  }
  raise_if_error(status);
}

MethodFace::Input MethodFace::read_input(nb::handle object, size_t index) const {
  const ValueInfo& expected = info().inputs[index];
  PyObject* raw = object.ptr();
  Input input;
  if (object.is_none()) return input;
  // bool is an int and numpy.float64 a float in Python: the order matters.
  if (PyBool_Check(raw)) {
    input.value = Value(Value::Variant(raw == Py_True));
  } else if (PyLong_Check(raw) && expected.kind == "float") {
    input.value = Value(Value::Variant(nb::cast<double>(object)));
  } else if (PyLong_Check(raw) ||
             (expected.kind == "int" && PyIndex_Check(raw))) {  // numpy.int64, 0-d arrays
    nb::object integer = nb::steal(PyNumber_Index(raw));
    if (!integer.is_valid()) throw nb::python_error();
    int overflow = 0;
    const long long number = PyLong_AsLongLongAndOverflow(integer.ptr(), &overflow);
    if (overflow != 0) {
      raise(error(Code::kInvalidArgument, "[execute] input %zu must fit 64 bits; got a larger int",
                  index));
    }
    input.value = Value(Value::Variant(static_cast<int64_t>(number)));
  } else if (PyFloat_CheckExact(raw) || (expected.kind == "float" && PyFloat_Check(raw))) {
    input.value = Value(Value::Variant(PyFloat_AsDouble(raw)));
  } else if (PyUnicode_Check(raw)) {
    input.value = Value(Value::Variant(nb::cast<std::string>(object)));
  } else {
    const std::string where = "[execute] input " + std::to_string(index);
    input.array = view_array(object, where);
    if (method_->written_input(index) != nullptr) check_writable(*input.array, where);
  }
  return input;
}

Status MethodFace::run(std::vector<Input>& inputs, std::vector<ArrayMemory>& bound,
                       RunProfile* profile) {
  for (size_t i = 0; i < inputs.size(); ++i) EDGEWISE_RETURN_IF_ERROR(give(inputs[i], i));
  for (size_t i = 0; i < bound.size(); ++i) {
    if (!may_bind_[i]) continue;
    const size_t bytes = info().outputs[i].nbytes;
    bound[i] = allocate_array(bytes);
    if (!bound[i]) {
      return error(Code::kOutOfMemory, "[execute] memory must hold output %zu; got no %zu bytes", i,
                   bytes);
    }
    // Where the plan does not allow it, now or ever, the output is copied after the run.
    if (!method_->bind_output(i, bound[i].get(), bytes)) {
      bound[i].reset();
      may_bind_[i] = false;
    }
  }
  EDGEWISE_RETURN_IF_ERROR(method_->execute(profile));
  give_back(inputs);
  return Status::ok_status();
}

// The method's own order of dimensions, or the plain one: then the core says what it takes.
std::span<const uint8_t> MethodFace::dim_order(const ArrayView& array, size_t index,
                                               std::array<uint8_t, kMaxDims>& plain) const {
  const ValueInfo& expected = info().inputs[index];
  if (expected.dim_order.size() == array.rank) return expected.dim_order;
  std::iota(plain.begin(), plain.end(), uint8_t{0});
  return {plain.data(), array.rank};
}

void MethodFace::give_back(const std::vector<Input>& inputs) const {
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Value* written = method_->written_input(i);
    if (written == nullptr || !inputs[i].array) continue;
    const Tensor* tensor = written->get<Tensor>();
    if (tensor == nullptr || tensor->numel() != static_cast<int64_t>(inputs[i].array->numel()))
      continue;
    std::array<uint8_t, kMaxDims> plain{};
    fill_from_dense(*inputs[i].array, dim_order(*inputs[i].array, i, plain), tensor->data<void>());
  }
}

Status MethodFace::give(Input& input, size_t index) {
  if (!input.array) return method_->set_input(index, input.value);
  const ArrayView& array = *input.array;
  std::array<uint8_t, kMaxDims> plain{};
  const std::span<const uint8_t> order = dim_order(array, index, plain);
  const size_t bytes = array.numel() * element_size(array.type);
  void* data = const_cast<std::byte*>(array.data);  // the core only reads inputs
  std::unique_ptr<std::byte[]> dense;
  if (!array.is_dense(order)) {
    dense.reset(new (std::nothrow) std::byte[bytes]);
    if (!dense) {
      return error(Code::kOutOfMemory, "[execute] memory must hold input %zu; got no %zu bytes",
                   index, bytes);
    }
    copy_dense(array, order, dense.get());
    data = dense.get();
  }
  auto tensor = Tensor::make(array.type, array.shape(), order, data, bytes, Dynamism::kStatic);
  if (!tensor.ok()) return tensor.status().within("execute");
  const Value value{Value::Variant(std::move(*tensor))};
  // The caller's array outlives the call, the dense copy does not.
  return dense ? method_->set_input(index, value) : method_->set_input_zero_copy(index, value);
}

}  // namespace edgewise::python
