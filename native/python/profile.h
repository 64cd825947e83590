// What a profiled call gives to Python.
#pragma once

#include <nanobind/nanobind.h>

namespace edgewise::python {

void bind_profile(nanobind::module_& module);

}  // namespace edgewise::python
