// Inputs of a run: from files and numbers, or made up.
#pragma once

#include <list>
#include <string>
#include <vector>

#include "edgewise/program.h"
#include "tools/npy.h"

namespace edgewise::tools {

struct Inputs {
  std::vector<Value> values;
  std::list<Array> arrays;  // memory of the tensors
};

// One value for each of `arguments`: a .npy file, or a number where the method takes one.
Result<Inputs> read_inputs(const MethodInfo& info, const std::vector<std::string>& arguments);

// Floats in [-1, 1), integers 0, bools True, at the sizes (bounds) of the method: the
// same in every run. Numbers that are not tensors keep their value (None here).
Result<Inputs> make_inputs(const MethodInfo& info);

}  // namespace edgewise::tools
