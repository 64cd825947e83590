// Kernels written in Python.
#pragma once

#include <nanobind/nanobind.h>

#include <string>

namespace edgewise::python {

// Registers `function` as the kernel of the operator `name`; see runtime/_kernels.py.
void register_python_kernel(const std::string& name, nanobind::callable function);

}  // namespace edgewise::python
