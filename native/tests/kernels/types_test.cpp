// The table of native/kernels/accuracy.txt: it has a row for every kernel, and kernels take the
// types that it lists and no others (one test for each operator).
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

#include "kernels/accuracy.h"
#include "kernels/case_files.h"
#include "kernels/cpu_dispatch.h"

namespace edgewise::testing {
namespace {

constexpr std::string_view kTypes[] = {"f32", "f64", "f16", "bf16", "i8",  "i16", "i32",
                                       "i64", "u8",  "u16", "u32",  "u64", "bool"};

std::string with(std::string line, char letter, std::string_view type) {
  const std::string placeholder{letter, '['};
  for (size_t at = 0; (at = line.find(placeholder, at)) != std::string::npos; at += type.size()) {
    // A letter of its own, not the end of a type's name.
    const char before = at > 0 ? line[at - 1] : ' ';
    if (before != ' ' && before != '=') {
      at += 1;
      continue;
    }
    line.replace(at, 1, type);
  }
  return line;
}

// Whether the call works with operands of the type, and with results of any that it may have.
bool takes(const std::string& line, std::string_view type) {
  const bool floating = type.front() == 'f' || type.starts_with("bf");
  std::set<std::string_view> results{type, floating ? type : "f32", "i64", "bool"};
  // Where no operand has the type, it is that of the result.
  if (line.find(" T[") == std::string::npos) results = {type};
  return std::ranges::any_of(results, [&](std::string_view result) {
    return run_case(with(with(line, 'T', type), 'R', result)).ok();
  });
}

TEST(KernelTable, HasARowForEveryKernel) {
  EXPECT_EQ(accuracy_problem(), "");
  std::set<std::string> registered;
  for (const std::string& name : kernel_names()) {
    EXPECT_NE(find_accuracy(name), nullptr) << name << " has no row in native/kernels/accuracy.txt";
    registered.insert(name);
    registered.insert(name.substr(0, name.find('.')));
  }
  for (const AccuracyRow& row : accuracy_rows()) {
    for (const std::string& name : row.names) {
      EXPECT_TRUE(registered.contains(name)) << name << " has a row and is no kernel";
    }
  }
}

// No kernel reads an argument before it has seen that all are of their kind.
TEST(KernelTable, RefusesArgumentsOfOtherKinds) {
  for (const std::string& name : kernel_names()) {
    const KernelEntry* kernel = find_kernel_of_target(name);
    ASSERT_NE(kernel, nullptr) << name;
    std::vector<Value> texts(kernel->argument_count + 1, Value(std::string("text")));
    std::vector<Value*> arguments;
    for (Value& text : texts) arguments.push_back(&text);
    KernelContext context(kernel->name, arguments);
    EXPECT_FALSE(kernel->function(context).ok()) << name;
  }
}

class KernelTypes : public ::testing::TestWithParam<std::string> {};

TEST_P(KernelTypes, AreThoseThatAreListed) {
  for (const CaseLine& line : type_cases().at(GetParam())) {
    const std::string name = line.text.substr(0, line.text.find(' '));
    const AccuracyRow* row = find_accuracy(name);
    ASSERT_NE(row, nullptr) << name;
    for (const std::string_view type : kTypes) {
      const bool listed = std::ranges::find(row->types, type) != row->types.end();
      EXPECT_EQ(takes(line.text, type), listed) << type << ": " << line.text;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Operators, KernelTypes, ::testing::ValuesIn(operators_of(type_cases())),
                         [](const auto& test) { return test_name_of(test.param); });

// So that no operator's test goes because its line does.
TEST(KernelTable, HasCallsOfMostKernels) {
  size_t count = 0;
  for (const auto& [op, lines] : type_cases()) count += lines.size();
  EXPECT_GT(count, 280u);
}

}  // namespace
}  // namespace edgewise::testing
