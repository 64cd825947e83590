// Kernel calls written as text, one a line (see cases/README.md for the form), so that
// tests read as tables and PyTorch can write them.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "edgewise/kernel.h"

namespace edgewise::testing {

// The values of one call, and the memory that its tensors point to.
class CaseValues {
 public:
  // Adds the value that `text` starts with and takes it off; null if it is malformed.
  // With `output`, tensors are unbound and have zero sizes and no contents yet.
  Value* add(std::string_view& text, bool output);

 private:
  Value* keep(Value value);
  Value* add_tensor(std::string_view& text, bool output);
  Value* add_list(std::string_view& text, bool output);

  std::vector<std::unique_ptr<Value>> values_;
  std::vector<std::unique_ptr<std::vector<std::byte>>> memory_;
};

// Runs a line's call; empty if the result is as written, else what is different.
std::string check_case(std::string_view line);

}  // namespace edgewise::testing
