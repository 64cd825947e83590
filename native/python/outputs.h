// From values of the runtime to Python objects.
#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <memory>

#include "edgewise/value.h"
#include "platform/aligned_memory.h"

namespace edgewise::python {

struct Free {
  void operator()(void* data) const { platform::free_aligned(data); }
};

// Memory for one array: aligned to kBufferAlignment and followed by kReadPadding bytes,
// as the runtime asks of every buffer that it writes to. Null when there is none.
using ArrayMemory = std::unique_ptr<void, Free>;
ArrayMemory allocate_array(size_t bytes);

// A writable numpy array of the tensor's type, shape and order of dimensions that owns
// `memory`, which holds the elements. bfloat16: see edgewise/runtime/_bfloat16.py.
nanobind::object to_array(const Tensor& tensor, ArrayMemory memory);

// A Python object with the value: None, int, float, bool, str, a list, or a numpy array.
// Tensors are copied, unless their elements are in `bound` already, which the array then
// takes over.
nanobind::object to_python(const Value& value, ArrayMemory bound = nullptr);

}  // namespace edgewise::python
