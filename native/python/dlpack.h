// The DLPack exchange format, read only: a capsule named "dltensor" or
// "dltensor_versioned" that points to a tensor of another library.
#pragma once

#include "array_view.h"

namespace edgewise::python {

// Reads an object that has `__dlpack__`; errors as view_array.
ArrayView view_dlpack(nanobind::handle object, const std::string& where);

}  // namespace edgewise::python
