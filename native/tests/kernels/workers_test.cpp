// Kernels that share their loops: what several threads compute is what one computes, bit by bit.
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "edgewise/kernel.h"

namespace edgewise::test {
namespace {

// Takes turns with nobody, from the last task to the first.
struct Backwards : Workers {
  void run(size_t count, void (*task)(void* context, size_t index), void* context) override {
    tasks += count;
    for (size_t i = count; i-- > 0;) task(context, i);
  }
  size_t tasks = 0;
};

using Sizes = std::vector<int64_t>;

struct Case {
  const char* kernel;
  std::vector<Sizes> arguments;  // tensors
  Sizes out;
  bool is_shared;
  std::vector<uint8_t> order = {};  // of the last tensor's dimensions in memory
};

const Case kCases[] = {
    {"aten::mm.out", {{200, 130}, {130, 300}}, {200, 300}, true},          // columns
    {"aten::mm.out", {{48, 100}, {100, 1030}}, {48, 1030}, true},          // with a rest
    {"aten::mm.out", {{1, 1200}, {1200, 1500}}, {1, 1500}, true},          // one row
    {"aten::mm.out", {{1, 1200}, {1200, 1501}}, {1, 1501}, true, {1, 0}},  // by columns
    {"aten::mm.out", {{700, 300}, {300, 40}}, {700, 40}, true},            // rows
    {"aten::mm.out", {{2049, 1000}, {1000, 1}}, {2049, 1}, true, {1, 0}},  // times a vector
    {"aten::bmm.out", {{5, 70, 64}, {5, 64, 70}}, {5, 70, 70}, true},      // products
    {"aten::linear.out", {{9, 400}, {777, 400}, {777}}, {9, 777}, true},   // with an addend
    {"aten::mm.out", {{100, 100}, {100, 40}}, {100, 40}, false},           // a narrow one
    {"aten::mm.out", {{10, 10}, {10, 300}}, {10, 300}, false},             // little to do
};

Value make(ScalarType type, const Sizes& sizes, const std::vector<uint8_t>& order,
           std::vector<std::byte>& memory) {
  size_t bytes = element_size(type);
  for (const int64_t size : sizes) bytes *= static_cast<size_t>(size);
  memory.resize(bytes + 64);
  return Value(Tensor::make(type, sizes, order, memory.data(), bytes, Dynamism::kStatic).value());
}

void fill(ScalarType type, std::vector<std::byte>& memory, unsigned seed) {
  std::minstd_rand random(seed);
  for (size_t i = 0; i + 8 <= memory.size(); i += element_size(type)) {
    const int number = static_cast<int>(random() % 2001) - 1000;
    if (type == ScalarType::kFloat) {
      const float value = static_cast<float>(number) / 1000;
      std::memcpy(&memory[i], &value, sizeof(value));
    } else if (type == ScalarType::kDouble) {
      const double value = number / 1000.0;
      std::memcpy(&memory[i], &value, sizeof(value));
    } else if (type == ScalarType::kHalf) {  // of 0.25 to 2, either sign
      const auto value = static_cast<uint16_t>(random() % 0x0c00 + 0x3400 + (number < 0) * 0x8000);
      std::memcpy(&memory[i], &value, sizeof(value));
    } else {
      memory[i] = static_cast<std::byte>(number);
    }
  }
}

class SharedLoops : public testing::TestWithParam<ScalarType> {};

TEST_P(SharedLoops, ComputeWhatOneThreadDoes) {
  for (const Case& test : kCases) {
    SCOPED_TRACE(std::string(test.kernel) + " " + std::to_string(&test - kCases));
    const Kernel* kernel = find_kernel(test.kernel);
    ASSERT_NE(kernel, nullptr);
    std::vector<std::byte> memory[4];
    std::vector<Value> values;
    for (size_t i = 0; i < test.arguments.size(); ++i) {
      const bool is_ordered = i + 1 == test.arguments.size();
      values.push_back(make(GetParam(), test.arguments[i],
                            is_ordered ? test.order : std::vector<uint8_t>(), memory[i]));
      fill(GetParam(), memory[i], static_cast<unsigned>(i + 1));
    }
    values.push_back(make(GetParam(), test.out, {}, memory[3]));
    std::vector<Value*> arguments;
    for (Value& value : values) arguments.push_back(&value);
    KernelContext alone(kernel->name, arguments);
    ASSERT_TRUE(kernel->function(alone).ok()) << alone.status().message();
    const std::vector<std::byte> expected = memory[3];
    std::fill(memory[3].begin(), memory[3].end(), std::byte{0x5a});
    std::fill(memory[3].end() - 64, memory[3].end(), std::byte{0});
    Backwards workers;
    KernelContext shared(kernel->name, arguments, &workers);
    ASSERT_TRUE(kernel->function(shared).ok()) << shared.status().message();
    EXPECT_TRUE(memory[3] == expected);
    EXPECT_EQ(workers.tasks > 1, test.is_shared);
  }
}

INSTANTIATE_TEST_SUITE_P(Types, SharedLoops,
                         testing::Values(ScalarType::kFloat, ScalarType::kDouble, ScalarType::kHalf,
                                         ScalarType::kChar));

}  // namespace
}  // namespace edgewise::test
