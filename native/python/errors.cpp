#include "errors.h"

#include <string>
#include <utility>

namespace nb = nanobind;

namespace edgewise::python {
namespace {

// A plain pointer: a thread may end when there is no interpreter to release it with.
thread_local PyObject* kept_exception = nullptr;

nb::object take_exception() { return nb::steal(std::exchange(kept_exception, nullptr)); }

const char* class_name(Code code) {
  switch (code) {
    case Code::kInvalidProgram:
      return "InvalidProgramError";
    case Code::kInvalidArgument:
      return "InvalidArgumentError";
    case Code::kNotFound:
      return "NotFoundError";
    case Code::kUnsupported:
      return "UnsupportedError";
    case Code::kOutOfMemory:
      return "OutOfMemoryError";
    case Code::kBackend:
      return "BackendError";
    default:
      return "Error";
  }
}

}  // namespace

void raise(const Status& status) {
  nb::object cause = take_exception();
  if (cause.is_valid() &&
      (status.code() == Code::kCancelled || !PyObject_IsInstance(cause.ptr(), PyExc_Exception))) {
    // What a handler of signals raises is no failure of the method, and KeyboardInterrupt none of
    // a backend: let them through.
    PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(cause.ptr())), cause.ptr());
    throw nb::python_error();
  }
  nb::object type = nb::module_::import_("edgewise.runtime.errors").attr(class_name(status.code()));
  const std::string& message = status.message();
  nb::object text = nb::steal(PyUnicode_DecodeUTF8(
      message.data(), static_cast<Py_ssize_t>(message.size()), "backslashreplace"));
  nb::object exception = type(text);
  if (cause.is_valid()) PyException_SetCause(exception.ptr(), cause.release().ptr());
  PyErr_SetObject(type.ptr(), exception.ptr());
  throw nb::python_error();
}

nb::str to_text(std::string_view utf8) {
  const auto size = static_cast<Py_ssize_t>(utf8.size());
  PyObject* text = PyUnicode_DecodeUTF8(utf8.data(), size, nullptr);
  if (text != nullptr) return nb::steal<nb::str>(text);
  PyErr_Clear();
  nb::object shown = nb::steal(PyUnicode_DecodeUTF8(utf8.data(), size, "backslashreplace"));
  raise(Status(Code::kInvalidProgram, "[program] names and text must be UTF-8; got '" +
                                          nb::cast<std::string>(shown).substr(0, 80) + "'"));
}

void keep_exception(nb::python_error& error) {
  forget_exception();
  kept_exception = nb::borrow(error.value()).release().ptr();
}

void forget_exception() { take_exception(); }

std::string describe(nb::python_error& error) {
  nb::handle value = error.value();
  std::string text = class_of(value);
  PyObject* message = PyObject_Str(value.ptr());
  if (message == nullptr) {
    PyErr_Clear();
    return text;
  }
  nb::object owner = nb::steal(message);
  if (const char* utf8 = PyUnicode_AsUTF8AndSize(message, nullptr)) {
    if (*utf8 != '\0') text += std::string(": ") + utf8;
  } else {
    PyErr_Clear();
  }
  return text;
}

}  // namespace edgewise::python
