// Which sizes of inputs of dynamic shapes are fixed, and which are equal. The format has one word
// for the whole tensor; the rest is named data that other runtimes do not read.
#pragma once

#include "edgewise/program.h"
#include "pte_file.h"

namespace edgewise {

// Fills `size_symbols` of the method's inputs from the file's "edgewise.input_sizes/METHOD", if it
// is there: for each input a byte with its rank (0 for one without symbols), and that many symbols,
// of 64 bits, little-endian.
Status read_input_sizes(const PteFile& file, MethodInfo& info);

// Two sizes that must be equal; the second comes later.
struct EqualSizes {
  size_t input;
  size_t dim;
  size_t other_input;
  size_t other_dim;
};
std::vector<EqualSizes> find_equal_sizes(const MethodInfo& info);

}  // namespace edgewise
