// From a Status of the core to a Python exception.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <string>
#include <string_view>
#include <utility>

#include "edgewise/status.h"

namespace edgewise::python {

// Raises the class of `edgewise.runtime.errors` that stands for the status's code, with
// its message as it is. A Python exception kept by `keep_exception` becomes its cause.
// Needs the GIL.
[[noreturn]] void raise(const Status& status);

// Raises InvalidArgumentError with the message "`where` `what`".
[[noreturn]] inline void refuse(const std::string& where, const std::string& what) {
  raise(Status(Code::kInvalidArgument, where + " " + what));
}

// The name of an object's class.
inline std::string class_of(nanobind::handle object) {
  return nanobind::cast<std::string>(nanobind::handle(object.type()).attr("__name__"));
}

// Text of a file as a str; raises InvalidProgramError if it is not UTF-8.
nanobind::str to_text(std::string_view utf8);

inline void raise_if_error(const Status& status) {
  if (!status.ok()) raise(status);
}

template <typename T>
T value_or_raise(Result<T> result) {
  if (!result.ok()) raise(result.status());
  return std::move(result).value();
}

// Keeps `error` as the reason for the failure that this thread's running call into the
// core is about to report. Needs the GIL, as all of these do.
void keep_exception(nanobind::python_error& error);

// Forgets what was kept, at the start of a call.
void forget_exception();

// "ValueError: text" of an exception.
std::string describe(nanobind::python_error& error);

}  // namespace edgewise::python
