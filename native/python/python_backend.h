// Backends written in Python: what `edgewise.runtime.register_backend` registers.
#pragma once

#include <nanobind/nanobind.h>

#include <string>

namespace edgewise::python {

// Registers `factory(payload, compile_specs, named_data) -> run` under `id`; `run` takes
// and returns lists of numpy arrays. The factory is kept until the process ends.
void register_python_backend(const std::string& id, nanobind::callable factory);

}  // namespace edgewise::python
