// Images that are quantized and moved on their way in, without XNNPACK.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmath>
#include <limits>
#include <string_view>

#include "payload_builder.h"

namespace edgewise::xnnpack {
namespace {

using Node = fb::XNodeUnion;
using Type = fb::XNNDatatype;
using Floats = std::vector<float>;

struct Case {
  const char* name;
  Type type;  // of what enters
  uint32_t channels;
  bool moves_first;  // before it quantizes
  int threads;
};

constexpr float kScale = 0.25f;
constexpr int kZeroPoint = 7;
constexpr uint32_t kBatch = 2, kHeight = 61, kWidth = 71;

uint32_t moved(PayloadBuilder* b, uint32_t x, Dims dims, Type type) {
  const uint32_t result = b->internal(std::move(dims), type);
  if (type != Type::fp32) b->per_tensor(result, kScale, kZeroPoint);
  fb::XNNStaticTransposeT transpose;
  transpose.num_dims = 4;
  transpose.perm = {0, 2, 3, 1};
  transpose.input_id = x;
  transpose.output_id = result;
  b->node(Node::XNNStaticTranspose, transpose);
  return result;
}

uint32_t quantized(PayloadBuilder* b, uint32_t x, Dims dims, Type type) {
  const uint32_t result = b->internal(std::move(dims), type);
  b->per_tensor(result, kScale, kZeroPoint);
  b->unary(Node::XNNConvert, x, result);
  return result;
}

// Negates what entered, so that there is something left to do.
PayloadBuilder image(const Case& c) {
  PayloadBuilder b;
  const Dims planes{kBatch, c.channels, kHeight, kWidth},
      pixels{kBatch, kHeight, kWidth, c.channels};
  const uint32_t x = b.input(planes);
  const uint32_t out = b.output(pixels);
  uint32_t value;
  if (c.type == Type::fp32) {
    value = moved(&b, x, pixels, c.type);
  } else if (c.moves_first) {
    value = quantized(&b, moved(&b, x, pixels, Type::fp32), pixels, c.type);
  } else {
    value = moved(&b, quantized(&b, x, planes, c.type), pixels, c.type);
  }
  if (c.type != Type::fp32) {
    const uint32_t real = b.internal(pixels);
    b.unary(Node::XNNConvert, value, real);
    value = real;
  }
  b.unary(Node::XNNNegate, value, out);
  return b;
}

float expected(float number, Type type) {
  if (type == Type::fp32) return -number;
  const float low = type == Type::qint8 ? -128 : 0;
  const float steps = std::nearbyint(number / kScale) + kZeroPoint;
  return -(std::fmin(std::fmax(steps, low), low + 255) - kZeroPoint) * kScale;
}

class ImageEntryTest : public testing::TestWithParam<Case> {};

TEST_P(ImageEntryTest, IsWhatTheNodesSay) {
  const Case& c = GetParam();
  const auto payload = image(c).bytes();
  auto delegate = make_delegate(payload, nullptr, nullptr, c.threads);
  ASSERT_TRUE(delegate.ok()) << delegate.status().message();
  struct Image {
    uint32_t channels, height, width;
  };
  // Smaller images than the payload's, others with fewer channels and more than any payload's here,
  // and the whole again.
  const Image whole{c.channels, kHeight, kWidth};
  for (const auto& [channels, height, width] :
       {whole, Image{c.channels, 3, 5}, Image{1, 9, 9}, Image{6, kHeight, kWidth}, whole}) {
    const size_t pixels = size_t{height} * width, count = kBatch * channels * pixels;
    HostTensor in(ScalarType::kFloat, {kBatch, channels, height, width});
    HostTensor out(ScalarType::kFloat, {kBatch, height, width, channels});
    Floats numbers(count);
    for (size_t i = 0; i < count; ++i) {
      // Ties, and numbers beyond both ends.
      numbers[i] = static_cast<float>(i * 37 % 701) * 0.125f - 43;
    }
    numbers[1] = std::numeric_limits<float>::infinity();
    numbers[2] = -numbers[1];
    const Status status = run(**delegate, {&in.fill(numbers), &out});
    ASSERT_TRUE(status.ok()) << status.message();
    const Floats got = out.read<float>();
    for (size_t i = 0; i < count; ++i) {
      const size_t image = i / (channels * pixels), channel = i / pixels % channels;
      const size_t index = (image * pixels + i % pixels) * channels + channel;
      ASSERT_EQ(got[index], expected(numbers[i], c.type)) << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Images, ImageEntryTest,
                         testing::Values(Case{"rgb", Type::qint8, 3, false, 1},
                                         Case{"rgb_two_threads", Type::qint8, 3, false, 2},
                                         Case{"rgb_moved_first", Type::qint8, 3, true, 2},
                                         Case{"rgb_unsigned", Type::quint8, 3, false, 1},
                                         Case{"rgb_float", Type::fp32, 3, false, 2},
                                         Case{"rgba", Type::qint8, 4, false, 2},
                                         Case{"rgba_float", Type::fp32, 4, false, 1},
                                         Case{"two_channels", Type::qint8, 2, false, 1},
                                         Case{"two_channels_float", Type::fp32, 2, false, 1},
                                         Case{"too_many", Type::qint8, 5, false, 1}),
                         [](const auto& of) { return of.param.name; });

// Inputs may be read in the callers' memory: what follows it is not theirs.
TEST_P(ImageEntryTest, ReadsNothingBehindTheImage) {
  const Case& c = GetParam();
  const auto payload = image(c).bytes();
  auto delegate = make_delegate(payload, nullptr, nullptr, c.threads);
  ASSERT_TRUE(delegate.ok()) << delegate.status().message();
  EXPECT_EQ((*delegate)->reads_within(0), std::string_view(c.name) != "too_many");
  EXPECT_FALSE((*delegate)->reads_within(1));
  if (!(*delegate)->reads_within(0)) return;

  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t bytes = size_t{kBatch} * c.channels * kHeight * kWidth * sizeof(float);
  const size_t readable = (bytes + page - 1) / page * page;
  void* const memory =
      mmap(nullptr, readable + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  ASSERT_EQ(mprotect(static_cast<char*>(memory) + readable, page, PROT_NONE), 0);
  HostTensor in(ScalarType::kFloat, {kBatch, c.channels, kHeight, kWidth});
  in.tensor().set_data(static_cast<char*>(memory) + readable - bytes, bytes);
  HostTensor out(ScalarType::kFloat, {kBatch, kHeight, kWidth, c.channels});
  const Status status = run(**delegate, {&in, &out});
  EXPECT_TRUE(status.ok()) << status.message();
  munmap(memory, readable + page);
}

TEST(ImageEntry, RefusesWhatDoesNotFit) {
  const auto payload = image({"", Type::qint8, 3, false, 1}).bytes();
  auto delegate = make_delegate(payload);
  ASSERT_TRUE(delegate.ok());
  HostTensor flat(ScalarType::kFloat, {3, 4, 5}), bytes(ScalarType::kChar, {1, 3, 4, 5});
  HostTensor empty(ScalarType::kFloat, {1, 3, 0, 5});
  HostTensor out(ScalarType::kFloat, {1, 4, 5, 3});
  for (HostTensor* in : {&flat, &bytes, &empty}) EXPECT_FALSE(run(**delegate, {in, &out}).ok());
}

// A result of the program is made by XNNPACK, which knows where it goes.
TEST(ImageEntry, LeavesResultsAlone) {
  PayloadBuilder b;
  const uint32_t x = b.input({1, 2, 2, 2}), out = b.output({1, 2, 2, 2});
  fb::XNNStaticTransposeT transpose;
  transpose.num_dims = 4;
  transpose.perm = {0, 2, 3, 1};
  transpose.input_id = x;
  transpose.output_id = out;
  b.node(Node::XNNStaticTranspose, transpose);
  const auto payload = b.bytes();
  auto delegate = make_delegate(payload);
  ASSERT_TRUE(delegate.ok()) << delegate.status().message();
  HostTensor in(ScalarType::kFloat, {1, 2, 2, 2}), result(ScalarType::kFloat, {1, 2, 2, 2});
  ASSERT_TRUE(run(**delegate, {&in.fill<float>({0, 1, 2, 3, 4, 5, 6, 7}), &result}).ok());
  EXPECT_EQ(result.read<float>(), (Floats{0, 4, 1, 5, 2, 6, 3, 7}));
}

}  // namespace
}  // namespace edgewise::xnnpack
