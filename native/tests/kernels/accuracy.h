// How exact each kernel is, from native/kernels/accuracy.txt, where the form is described.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "edgewise/scalar_type.h"

namespace edgewise::testing {

// How far an element may be from the exact result, rounded to its type.
struct Bound {
  bool terms = false;  // counts epsilons of the terms' magnitudes, and one unit more
  double count = 0;    // of units in the last place, or of epsilons; 0: exact

  std::string describe() const;
};

struct AccuracyRow {
  std::vector<std::string> types;
  Bound single, whole, half;  // float32, float64, float16 and bfloat16
  std::vector<std::string> names;

  Bound of(ScalarType type) const;
};

// Null if no row names the kernel, which goes before its name without overload.
const AccuracyRow* find_accuracy(std::string_view kernel);
// What is wrong with the file; empty if nothing is.
std::string accuracy_problem();
const std::vector<AccuracyRow>& accuracy_rows();

}  // namespace edgewise::testing
