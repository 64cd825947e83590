#include "kernels/case_files.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <memory>

namespace edgewise::testing {
namespace {

CasesByOperator read_cases(std::string_view extension, std::string_view only = {}) {
  CasesByOperator found;
  const auto folder = std::filesystem::path(EDGEWISE_NATIVE) / "tests" / "kernels" / "cases";
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::filesystem::path& path = entry.path();
    if (path.extension() != extension || (!only.empty() && path.filename() != only)) continue;
    auto* names = new CaseNames;  // for the process's life
    std::ifstream file(path);
    std::string line;
    for (size_t number = 1; std::getline(file, line); ++number) {
      if (line.empty() || line.front() == '#' || take_definition(line, *names)) continue;
      const std::string kernel = line.substr(0, line.find(' '));
      found[kernel.substr(0, kernel.find('.'))].push_back(
          {path.filename().string() + ":" + std::to_string(number), line, names});
    }
  }
  return found;
}

}  // namespace

const CasesByOperator& kernel_cases() {
  static const auto* cases = new CasesByOperator(read_cases(".txt"));
  return *cases;
}

const CasesByOperator& type_cases() {
  static const auto* cases = new CasesByOperator(read_cases(".tsv", "by_type.tsv"));
  return *cases;
}

std::vector<std::string> operators_of(const CasesByOperator& cases) {
  std::vector<std::string> operators;
  for (const auto& [op, lines] : cases) operators.push_back(op);
  return operators;
}

std::string test_name_of(std::string_view op) {
  std::string name(op);
  name.replace(name.find("::"), 2, "_");
  std::ranges::replace_if(
      name, [](unsigned char c) { return std::isalnum(c) == 0; }, '_');
  return name;
}

}  // namespace edgewise::testing
