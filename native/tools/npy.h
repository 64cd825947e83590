// NumPy's .npy files: the part of the format that tensors need.
//
//   0  "\x93NUMPY"   8  u16 (version 1) or u32 (2, 3): length of the text that follows
//   6  u8, u8: version; text: {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }
//   then the elements, little-endian
#pragma once

#include <cstdio>
#include <string>
#include <vector>

#include "edgewise/status.h"
#include "edgewise/tensor.h"

namespace edgewise::tools {

// A tensor and the memory that it points to.
struct Array {
  std::vector<std::byte> bytes;
  Tensor tensor;
};

// Failures name the file, the field and what is taken.
Result<Array> read_npy(const std::string& path);
// The same of a file that is open; `name` is what messages call it.
Result<Array> read_npy(std::FILE* file, const std::string& name);
// Writes the elements in row-major order.
Status write_npy(const std::string& path, const Tensor& tensor);

}  // namespace edgewise::tools
