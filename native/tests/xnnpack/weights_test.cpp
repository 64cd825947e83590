// What becomes of constants in named data when a delegate is made.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "backends/xnnpack/allocator.h"
#include "backends/xnnpack/non_temporal_loads.h"
#include "backends/xnnpack/program_state.h"
#include "payload_builder.h"

namespace edgewise::xnnpack {
namespace {

using Node = fb::XNodeUnion;
using Floats = std::vector<float>;

constexpr uint32_t kSize = 64;

// Remembers what was released.
class WatchedData final : public NamedData {
 public:
  MemoryNamedData blobs;
  mutable std::vector<std::span<const std::byte>> released;
  size_t told = 0;

  Result<std::span<const std::byte>> find(std::string_view key) const override {
    return blobs.find(key);
  }
  void release(std::span<const std::byte> bytes) const override {
    if (!bytes.empty()) released.push_back(bytes);
  }
  size_t bytes() const override { return told; }
  bool is_released(std::string_view key) const {
    const std::byte* data = find(key)->data();
    return std::any_of(released.begin(), released.end(), [&](const auto& part) {
      return data >= part.data() && data < part.data() + part.size();
    });
  }
};

// (x * w + b) with named weights, times a named vector.
std::vector<std::byte> scaled_linear(WatchedData* data, float max = INFINITY) {
  PayloadBuilder b;
  const uint32_t x = b.input({2, kSize}), out = b.output({2, kSize});
  const uint32_t product = b.internal({2, kSize});
  const uint32_t w = b.constant<float>({kSize, kSize}, Floats(kSize * kSize, 2));
  const uint32_t bias = b.constant<float>({kSize}, Floats(kSize, 1));
  const uint32_t scale = b.constant<float>({kSize}, Floats(kSize, 3));
  b.linear(x, w, bias, product);
  if (max < INFINITY) b.bound(0, max);
  b.binary(Node::XNNMultiply, product, scale, out);
  b.name_constant(w, "w", &data->blobs);
  b.name_constant(bias, "bias", &data->blobs);
  b.name_constant(scale, "scale", &data->blobs);
  return b.bytes();
}

TEST(XnnpackWeights, ReleasesWhatWasPackedAndKeepsWhatIsRead) {
  WatchedData data;
  const auto payload = scaled_linear(&data);
  auto delegate = make_delegate(payload, &data);
  ASSERT_TRUE(delegate.ok()) << delegate.status().message();
  EXPECT_TRUE(data.is_released("w"));
  EXPECT_TRUE(data.is_released("bias"));
  size_t bytes = 0;
  for (const auto& part : data.released) bytes += part.size();
  EXPECT_GE(bytes, kSize * kSize * sizeof(float));
  HostTensor in(ScalarType::kFloat, {2, kSize}), out(ScalarType::kFloat, {2, kSize});
  in.fill(Floats(2 * kSize, 1));
  ASSERT_TRUE(run(**delegate, {&in, &out}).ok());
  EXPECT_EQ(out.read<float>(), Floats(2 * kSize, (2.0f * kSize + 1) * 3));
}

// The delegates of two partitions, or of two methods: one program state.
TEST(XnnpackWeights, AreOneForAllDelegatesOfAProgram) {
  WatchedData data;
  const auto payload = scaled_linear(&data);
  std::shared_ptr<BackendProgramState> state;
  std::vector<std::unique_ptr<Delegate>> delegates;
  for (int i = 0; i < 3; ++i) {
    auto made = make_delegate(payload, &data, &state);
    ASSERT_TRUE(made.ok());
    delegates.push_back(std::move(*made));
  }
  auto& weights = static_cast<ProgramState&>(*state).weights();
  EXPECT_EQ(weights.count(), 1u);
  EXPECT_GE(weights.reuses(), 2u);
}

// Two programs that map one file: two states, the same addresses.
TEST(XnnpackWeights, AreOneForProgramsOfTheSameBytesAsLongAsOneLives) {
  WatchedData data;
  const auto payload = scaled_linear(&data);
  std::shared_ptr<BackendProgramState> first, second, third;
  auto one = make_delegate(payload, &data, &first);
  ASSERT_TRUE(one.ok());
  auto two = make_delegate(payload, &data, &second);
  ASSERT_TRUE(two.ok());
  EXPECT_GE(static_cast<ProgramState&>(*second).weights().reuses(), 1u);
  one->reset();
  first.reset();
  HostTensor in(ScalarType::kFloat, {2, kSize}), out(ScalarType::kFloat, {2, kSize});
  in.fill(Floats(2 * kSize, 1));
  ASSERT_TRUE(run(**two, {&in, &out}).ok());
  EXPECT_EQ(out.read<float>(), Floats(2 * kSize, (2.0f * kSize + 1) * 3));
  two->reset();
  second.reset();
  auto last = make_delegate(payload, &data, &third);
  ASSERT_TRUE(last.ok());
  EXPECT_EQ(static_cast<ProgramState&>(*third).weights().reuses(), 0u);
}

TEST(XnnpackWeights, AreSharedWhateverTheBoundsOfTheResult) {
  WatchedData data;
  const auto free = scaled_linear(&data), bounded = scaled_linear(&data, 10);
  const auto rectified = scaled_linear(&data, std::numeric_limits<float>::max());
  std::shared_ptr<BackendProgramState> state;
  HostTensor in(ScalarType::kFloat, {2, kSize}), out(ScalarType::kFloat, {2, kSize});
  in.fill(Floats(2 * kSize, 1));
  const float whole = (2.0f * kSize + 1) * 3;
  for (const auto& [payload, expected] :
       {std::pair(&free, whole), std::pair(&bounded, 30.0f), std::pair(&rectified, whole)}) {
    auto delegate = make_delegate(*payload, &data, &state);
    ASSERT_TRUE(delegate.ok());
    ASSERT_TRUE(run(**delegate, {&in, &out}).ok());
    EXPECT_EQ(out.read<float>(), Floats(2 * kSize, expected));
  }
  EXPECT_EQ(static_cast<ProgramState&>(*state).weights().count(), 1u);
}

// How small buffers of much lie; of little, each is an allocation of its own.
TEST(XnnpackWeights, OfMuchLieSideBySide) {
  constexpr size_t kSmall = 1000, kDistance = 1000 / 64 * 64 + 64 + kReadPadding;
  const auto distance = [](const PackedWeights::Buffer& a, const PackedWeights::Buffer& b) {
    return b.memory.get() - a.memory.get();
  };
  PackedWeights weights;
  weights.expect(kMostCached + 1);
  auto a = weights.allocate(kSmall), b = weights.allocate(kSmall);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(a.memory.get()) % kHugePage, 0u);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(b.memory.get()) % kBufferAlignment, 0u);
  EXPECT_EQ(distance(a, b), static_cast<std::ptrdiff_t>(kDistance));
  const auto large = weights.allocate(kHugePage);
  auto c = weights.allocate(kSmall);
  EXPECT_EQ(distance(b, c), static_cast<std::ptrdiff_t>(kDistance));
  EXPECT_FALSE(large.is_in_chunk);
  const auto* of_c = c.memory.get();
  weights.give_back(std::move(b));  // not the last
  weights.give_back(std::move(c));
  EXPECT_EQ(weights.allocate(kSmall).memory.get(), of_c);
  EXPECT_EQ(weights.allocate(SIZE_MAX).memory, nullptr);

  PackedWeights little;
  little.expect(kMostCached);
  EXPECT_FALSE(little.allocate(kSmall).is_in_chunk);
}

TEST(XnnpackWeights, OfMuchAreInSeveralChunksAndStayAsLongAsTheyAreUsed) {
  constexpr size_t kBytes = kHugePage / 2, kCount = 150;
  std::vector<PackedWeights::Buffer> buffers;
  {
    PackedWeights weights;
    weights.expect(SIZE_MAX);
    for (size_t i = 0; i < kCount; ++i) {
      buffers.push_back(weights.allocate(kBytes));
      ASSERT_NE(buffers.back().memory, nullptr);
      buffers.back().memory.get()[0] = buffers.back().memory.get()[kBytes - 1] = std::byte(i);
    }
  }
  buffers.erase(buffers.begin(), buffers.begin() + 20);
  for (size_t i = 20; i < kCount; ++i) {
    EXPECT_EQ(buffers[i - 20].memory.get()[0], std::byte(i));
    EXPECT_EQ(buffers[i - 20].memory.get()[kBytes - 1], std::byte(i));
  }
}

// Named ones side by side; those that each delegate has for itself elsewhere.
TEST(XnnpackWeights, OfMuchGiveTheSameResults) {
  for (const bool is_named : {true, false}) {
    WatchedData data;
    data.told = SIZE_MAX;
    PayloadBuilder b;
    const uint32_t x = b.input({4, kSize}), y = b.internal({4, kSize}), out = b.output({4, kSize});
    for (const auto& [from, to] : {std::pair(x, y), std::pair(y, out)}) {
      const uint32_t w = b.constant<float>({kSize, kSize}, Floats(kSize * kSize, 0.5));
      const uint32_t bias = b.constant<float>({kSize}, Floats(kSize, 1));
      b.linear(from, w, bias, to);
      if (!is_named) continue;
      b.name_constant(w, "w" + std::to_string(to), &data.blobs);
      b.name_constant(bias, "bias" + std::to_string(to), &data.blobs);
    }
    const auto payload = b.bytes();
    std::shared_ptr<BackendProgramState> state;
    auto delegate = make_delegate(payload, &data, &state);
    ASSERT_TRUE(delegate.ok()) << delegate.status().message();
    constexpr float kFirst = kSize * 0.5f + 1;
    // Packed again for more rows than there were.
    for (const int64_t rows : {1, 4, 2}) {
      HostTensor in(ScalarType::kFloat, {rows, kSize}), result(ScalarType::kFloat, {rows, kSize});
      in.fill(Floats(static_cast<size_t>(rows) * kSize, 1));
      ASSERT_TRUE(run(**delegate, {&in, &result}).ok());
      EXPECT_EQ(result.read<float>(),
                Floats(static_cast<size_t>(rows) * kSize, kFirst * kSize * 0.5f + 1));
    }
    const auto next = static_cast<ProgramState&>(*state).weights().allocate(1);
    const bool is_first = reinterpret_cast<uintptr_t>(next.memory.get()) % kHugePage == 0;
    EXPECT_EQ(is_first, !is_named);
  }
}

}  // namespace
}  // namespace edgewise::xnnpack
