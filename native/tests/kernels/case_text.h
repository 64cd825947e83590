// Kernel calls written as text, one a line (see cases/README.md for the form), so that
// tests read as tables and PyTorch can write them.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "edgewise/kernel.h"

namespace edgewise::testing {

// Tensors that lines of a file share, as text.
using CaseNames = std::map<std::string, std::string, std::less<>>;

// The values of one call, and the memory that its tensors point to.
class CaseValues {
 public:
  explicit CaseValues(const CaseNames& names) : names_(names) {}

  // Adds the value that `text` starts with and takes it off; null if it is malformed.
  // With `output`, tensors are unbound and have zero sizes and no contents yet.
  Value* add(std::string_view& text, bool output);

 private:
  Value* keep(Value value);
  Value* add_tensor(std::string_view& text, bool output);
  Value* add_list(std::string_view& text, bool output);

  const CaseNames& names_;
  std::vector<std::unique_ptr<Value>> values_;
  std::vector<std::unique_ptr<std::vector<std::byte>>> memory_;
};

// Adds the tensor of a line "$name = ..."; false if the line is none.
bool take_definition(std::string_view line, CaseNames& names);

// Runs a line's call with the kernel of the level in force (see kernels/cpu_dispatch.h); empty if
// the result is as written, within what the kernel declares, else what is different.
std::string check_case(std::string_view line, const CaseNames& names);

// Runs a line's call and returns its status; results are passed as outputs only.
Status run_case(std::string_view line);

}  // namespace edgewise::testing
