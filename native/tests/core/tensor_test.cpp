#include "edgewise/tensor.h"

#include <gtest/gtest.h>

#include <numeric>

#include "core/tensor_copy.h"

namespace edgewise {
namespace {

Tensor make(std::vector<int64_t> sizes, std::vector<uint8_t> dim_order = {}, void* data = nullptr,
            ScalarType type = ScalarType::kFloat, Dynamism dynamism = Dynamism::kStatic) {
  Result<Tensor> tensor = Tensor::make(type, sizes, dim_order, data, 64, dynamism);
  EXPECT_TRUE(tensor.ok()) << tensor.status().message();
  return tensor.ok() ? *tensor : Tensor();
}

std::vector<int64_t> strides(const Tensor& tensor) {
  return {tensor.strides().begin(), tensor.strides().end()};
}

TEST(Tensor, HasStridesByDimOrder) {
  EXPECT_EQ(strides(make({2, 3, 4})), (std::vector<int64_t>{12, 4, 1}));
  EXPECT_EQ(strides(make({2, 3, 4, 5}, {0, 2, 3, 1})), (std::vector<int64_t>{60, 1, 15, 3}));
  EXPECT_EQ(make({}).numel(), 1);
  EXPECT_EQ(make({2, 0, 4}).numel(), 0);
  EXPECT_EQ(make({2, 0, 4}).nbytes(), 0u);
  EXPECT_TRUE(make({2, 3}).is_contiguous());
  EXPECT_FALSE(make({2, 3}, {1, 0}).is_contiguous());
  EXPECT_EQ(make({1, 3}).describe(), "float32[1, 3]");
}

TEST(Tensor, RefusesImpossibleShapes) {
  const auto code = [](std::vector<int64_t> sizes, std::vector<uint8_t> order, int type = 6) {
    return Tensor::make(static_cast<ScalarType>(type), sizes, order, nullptr, 0, Dynamism::kStatic)
        .status()
        .code();
  };
  EXPECT_EQ(code({-1}, {}), Code::kInvalidArgument);
  EXPECT_EQ(code({INT64_MAX}, {}), Code::kInvalidArgument);
  EXPECT_EQ(code({INT64_MAX, INT64_MAX}, {}), Code::kInvalidArgument);
  const int64_t most = int64_t{1} << (sizeof(size_t) == 8 ? 60 : 28);  // of float32
  EXPECT_EQ(code({most}, {}), Code::kOk);
  EXPECT_EQ(code({most + 1}, {}), Code::kInvalidArgument);
  EXPECT_EQ(code({2, 2}, {0, 2}), Code::kInvalidArgument);
  EXPECT_EQ(code({2, 2}, {1, 1}), Code::kInvalidArgument);
  EXPECT_EQ(code({2, 2}, {1}), Code::kInvalidArgument);
  EXPECT_EQ(code(std::vector<int64_t>(16, 1), {}), Code::kOk);
  EXPECT_EQ(code(std::vector<int64_t>(17, 1), {}), Code::kUnsupported);
  EXPECT_EQ(code({1}, {}, 8), Code::kUnsupported);
}

TEST(Tensor, ResizesByDynamism) {
  const std::vector<int64_t> same = {2, 3};
  const std::vector<int64_t> other = {4, 4};
  const std::vector<int64_t> large = {4, 5};
  const std::vector<int64_t> flat = {6};
  Tensor fixed = make(same);
  EXPECT_TRUE(fixed.resize(same).ok());
  EXPECT_FALSE(fixed.resize(other).ok());
  Tensor bound = make(same, {1, 0}, nullptr, ScalarType::kFloat, Dynamism::kDynamicBound);
  EXPECT_TRUE(bound.resize(other).ok());
  EXPECT_EQ(strides(bound), (std::vector<int64_t>{1, 4}));
  EXPECT_FALSE(bound.resize(large).ok());
  EXPECT_FALSE(bound.resize(flat).ok());
  EXPECT_EQ(bound.numel(), 16);
  Tensor unbound = make(same, {}, nullptr, ScalarType::kFloat, Dynamism::kDynamicUnbound);
  unbound.set_buffer(std::make_shared<DynamicBuffer>());
  EXPECT_TRUE(unbound.resize(same).ok());
  ASSERT_NE(unbound.data<float>(), nullptr);
  EXPECT_TRUE(unbound.resize(large).ok());
  EXPECT_EQ(unbound.capacity(), 80u);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(unbound.data<void>()) % kBufferAlignment, 0u);
  // The padding is readable.
  EXPECT_EQ(unbound.data<std::byte>()[80 + kReadPadding - 1], std::byte{0});
  Tensor constant = make(same);
  constant.set_writable(false);
  EXPECT_FALSE(constant.resize(same).ok());
}

// All orders of 4 dimensions against a plain loop.
TEST(TensorCopy, KeepsElements) {
  std::vector<uint8_t> from_order = {0, 1, 2, 3};
  do {
    std::vector<uint8_t> to_order = {0, 1, 2, 3};
    do {
      std::vector<uint16_t> from(2 * 3 * 1 * 4);
      std::vector<uint16_t> to(from.size());
      std::iota(from.begin(), from.end(), uint16_t{0});
      const Tensor source = make({2, 3, 1, 4}, from_order, from.data(), ScalarType::kShort);
      Tensor target = make({2, 3, 1, 4}, to_order, to.data(), ScalarType::kShort);
      ASSERT_TRUE(copy_elements(source, target).ok());
      for (int64_t i = 0; i < 2; ++i) {
        for (int64_t j = 0; j < 3; ++j) {
          for (int64_t k = 0; k < 4; ++k) {
            const auto at = [&](const Tensor& t) {
              return static_cast<size_t>(i * t.strides()[0] + j * t.strides()[1] +
                                         k * t.strides()[3]);
            };
            ASSERT_EQ(from[at(source)], to[at(target)]);
          }
        }
      }
    } while (std::next_permutation(to_order.begin(), to_order.end()));
  } while (std::next_permutation(from_order.begin(), from_order.end()));
}

TEST(TensorCopy, TakesOverlapAndOddMemory) {
  std::vector<float> data = {0, 1, 2, 3, 4, 5};
  const Tensor source = make({2, 3}, {}, data.data());
  Tensor target = make({2, 3}, {1, 0}, data.data());
  ASSERT_TRUE(copy_elements(source, target).ok());
  EXPECT_EQ(data, (std::vector<float>{0, 3, 1, 4, 2, 5}));
  std::vector<std::byte> odd(25);
  std::vector<float> out(6);
  Tensor unaligned = make({2, 3}, {}, odd.data() + 1);
  Tensor transposed = make({2, 3}, {1, 0}, out.data());
  EXPECT_TRUE(copy_elements(unaligned, transposed).ok());
}

TEST(TensorCopy, DimensionsOfSizeOneLieAnywhere) {
  EXPECT_TRUE(same_layout(make({1, 3, 1, 1}), make({1, 3, 1, 1}, {0, 2, 3, 1})));
  EXPECT_FALSE(same_layout(make({1, 3, 2, 1}), make({1, 3, 2, 1}, {0, 2, 3, 1})));
}

}  // namespace
}  // namespace edgewise
