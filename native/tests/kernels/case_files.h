// The cases of cases/, by operator.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/case_text.h"

namespace edgewise::testing {

struct CaseLine {
  std::string origin;  // "unary.txt:3"
  std::string text;
  const CaseNames* names = nullptr;  // of its file; they live as long as the process
};

// By operator: "aten::add" has those of add.out, add.Scalar_out and so on.
using CasesByOperator = std::map<std::string, std::vector<CaseLine>, std::less<>>;

// All lines of cases/*.txt.
const CasesByOperator& kernel_cases();
// All lines of cases/by_type.tsv.
const CasesByOperator& type_cases();

// The operators of cases, for INSTANTIATE_TEST_SUITE_P, and their names there: "aten_add".
std::vector<std::string> operators_of(const CasesByOperator& cases);
std::string test_name_of(std::string_view op);

}  // namespace edgewise::testing
