// How delegates are fed and shared.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <thread>

#include "backends/xnnpack/program_state.h"
#include "payload_builder.h"
#include "random_values.h"

namespace edgewise::xnnpack {
namespace {

using Node = fb::XNodeUnion;
using Floats = std::vector<float>;

constexpr uint32_t kIn = 40;
constexpr uint32_t kOut = 24;

// A matrix of threes in named data; rows are dynamic, `rows` at most.
PayloadBuilder linear(uint32_t rows, MemoryNamedData* named_data, uint32_t flags = 0) {
  PayloadBuilder b;
  const uint32_t x = b.input({rows, kIn});
  const Dims dims = flags == 0 ? Dims{kOut, kIn} : Dims{kIn, kOut};
  const uint32_t w = b.constant<float>(dims, Floats(kIn * kOut, 3));
  const uint32_t out = b.output({rows, kOut});
  b.linear(x, w, kNoId, out, flags);
  if (named_data != nullptr) b.name_constant(w, "w", named_data);
  return b;
}

void expect_runs(Delegate& delegate, int64_t rows, HostTensor* out) {
  HostTensor in(ScalarType::kFloat, {rows, kIn});
  in.fill(Floats(static_cast<size_t>(rows) * kIn, 0.5f));
  const Status status = run(delegate, {&in, out});
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(out->tensor().size(0), rows);
  EXPECT_EQ(out->read<float>(), Floats(static_cast<size_t>(rows) * kOut, 1.5f * kIn));
}

TEST(XnnpackDelegate, TakesAnyNumberOfRows) {
  const auto payload = linear(8, nullptr).bytes();
  auto delegate = make_delegate(payload);
  ASSERT_TRUE(delegate.ok()) << delegate.status().message();
  HostTensor out(ScalarType::kFloat, {32, kOut}, {}, Dynamism::kDynamicBound);
  for (int64_t rows : {8, 1, 3, 32, 2, 8}) expect_runs(**delegate, rows, &out);
}

TEST(XnnpackDelegate, RefusesWhatDoesNotFit) {
  const auto payload = linear(2, nullptr).bytes();
  auto delegate = make_delegate(payload);
  ASSERT_TRUE(delegate.ok());
  HostTensor in(ScalarType::kFloat, {2, kIn}), out(ScalarType::kFloat, {2, kOut});
  HostTensor narrow(ScalarType::kFloat, {2, kIn - 1}), deep(ScalarType::kFloat, {1, 2, kIn});
  HostTensor whole(ScalarType::kInt, {2, kIn}), small(ScalarType::kFloat, {1, kOut});
  HostTensor empty(ScalarType::kFloat, {0, kIn}), number(ScalarType::kFloat, {1});
  number.value.variant() = int64_t{3};
  const auto refused = [&](HostTensor* a, HostTensor* b, const char* message) {
    const Status status = run(**delegate, {a, b});
    EXPECT_FALSE(status.ok());
    EXPECT_NE(status.message().find(message), std::string::npos) << status.message();
  };
  refused(&narrow, &out, "do not go together");
  refused(&deep, &out, "2 dimensions");
  refused(&whole, &out, "must hold fp32");
  refused(&in, &small, "");
  refused(&empty, &out, "static");
  refused(&number, &out, "must be a tensor");
  EXPECT_FALSE(run(**delegate, {&in}).ok());
  expect_runs(**delegate, 2, &out);  // and is none the worse for it
}

TEST(XnnpackDelegate, TakesNumbersWithoutDimensions) {
  PayloadBuilder b;
  const uint32_t x = b.input({1}), out = b.output({1});
  b.unary(Node::XNNNegate, x, out);
  const auto payload = b.bytes();
  auto delegate = make_delegate(payload);
  ASSERT_TRUE(delegate.ok());
  HostTensor in(ScalarType::kFloat, {}), result(ScalarType::kFloat, {});
  in.fill<float>({2});
  const Status status = run(**delegate, {&in, &result});
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(result.read<float>(), Floats{-2});
}

// XNNPACK forgets the parameters of rows where rows grow while the whole does not.
TEST(XnnpackDelegate, QuantizesAsManyRowsAsThereAre) {
  PayloadBuilder b;
  const uint32_t x = b.input({1, 64}), q = b.internal({1, 64}, fb::XNNDatatype::qdint8);
  const uint32_t r = b.internal({1, 64});
  const uint32_t w = b.constant<int8_t>({1, 1}, {2}, fb::XNNDatatype::qcint8);
  const uint32_t out = b.output({64, 1});
  b.per_token(q, 1);
  b.per_channel(w, {1}, 0);
  b.tensor(r).dims = {64, 1};
  b.tensor(q).dims = {64, 1};
  fb::XNNStaticReshapeT reshape;
  reshape.num_dims = 2;
  reshape.new_shape = {0, 1};
  reshape.input_id = x;
  reshape.output_id = r;
  b.node(Node::XNNStaticReshape, reshape);
  b.unary(Node::XNNConvert, r, q);
  b.linear(q, w, kNoId, out);
  const auto payload = b.bytes();
  auto delegate = make_delegate(payload);
  ASSERT_TRUE(delegate.ok()) << delegate.status().message();
  for (int64_t size : {64, 4, 512, 40}) {
    HostTensor in(ScalarType::kFloat, {1, size}), result(ScalarType::kFloat, {size, 1});
    const auto count = static_cast<size_t>(size);
    Floats numbers(count), doubled(count);
    for (size_t i = 0; i < count; ++i) doubled[i] = 2 * (numbers[i] = static_cast<float>(i % 50));
    ASSERT_TRUE(run(**delegate, {&in.fill(numbers), &result}).ok());
    for (size_t i = 0; i < count; ++i) EXPECT_NEAR(result.read<float>()[i], doubled[i], 0.5f) << i;
  }
}

// Kernels of up to 16 rows read parameters behind those of the last row.
TEST(XnnpackDelegate, ComputesRowsOf4BitWeightsAsIfEachWereAlone) {
  constexpr uint32_t kMost = 40, kDepth = 64, kColumns = 48;
  for (const bool is_in_blocks : {false, true}) {
    PayloadBuilder b;
    const uint32_t x = b.input({kMost, kDepth}), y = b.output({kMost, kColumns});
    const uint32_t q = b.internal({kMost, kDepth}, fb::XNNDatatype::qdint8);
    b.per_token(q, 1);
    b.unary(Node::XNNConvert, x, q);
    if (is_in_blocks) {
      b.group_linear(q, y);
    } else {
      std::vector<uint8_t> nibbles(size_t{kColumns} * kDepth / 2);
      for (size_t i = 0; i < nibbles.size(); ++i) nibbles[i] = static_cast<uint8_t>(i * 37);
      const uint32_t w = b.constant<uint8_t>({kColumns, kDepth}, nibbles, fb::XNNDatatype::qcint4);
      b.per_channel(w, Floats(kColumns, 0.25f), 0);
      b.linear(q, w, kNoId, y);
    }
    const auto payload = b.bytes();
    auto delegate = make_delegate(payload, nullptr, nullptr, 1, false);
    ASSERT_TRUE(delegate.ok()) << delegate.status().message();
    const Floats rows = random_floats(size_t{kMost} * kDepth, 3);
    const auto compute = [&](size_t first, size_t count) {
      HostTensor in(ScalarType::kFloat, {static_cast<int64_t>(count), kDepth});
      HostTensor out(ScalarType::kFloat, {static_cast<int64_t>(count), kColumns});
      const auto begin = rows.begin() + static_cast<std::ptrdiff_t>(first * kDepth);
      in.fill(Floats(begin, begin + static_cast<std::ptrdiff_t>(count * kDepth)));
      EXPECT_TRUE(run(**delegate, {&in, &out}).ok());
      return out.read<float>();
    };
    Floats alone;
    for (size_t i = 0; i < kMost; ++i) {
      const Floats row = compute(i, 1);
      alone.insert(alone.end(), row.begin(), row.end());
    }
    for (size_t count = 2; count <= kMost; ++count) {
      const Floats together = compute(0, count);
      for (size_t i = 0; i < together.size(); ++i) {
        ASSERT_NEAR(together[i], alone[i], 1e-3f) << count << " rows, row " << i / kColumns;
      }
    }
  }
}

// Weights that no cache holds, and which many rows read, are packed in blocks of columns.
TEST(XnnpackDelegate, ComputesColumnsInBlocksAsInOne) {
  using Type = fb::XNNDatatype;
  constexpr uint32_t kDepth = 1024, kColumns = 2200, kFew = 8, kMany = 40;
  struct Case {
    const char* name;
    Type input, filter;
  };
  for (const Case& c : {Case{"Float", Type::fp32, Type::fp32},
                        {"Int8", Type::qint8, Type::qcint8},
                        {"FloatRows", Type::fp32, Type::qcint8},
                        {"Rows", Type::qdint8, Type::qcint8},
                        {"Rows4Bit", Type::qdint8, Type::qcint4},
                        {"Blocks4Bit", Type::qdint8, Type::qbint4}}) {
    const auto build = [&](uint32_t rows, MemoryNamedData* named_data) {
      PayloadBuilder b;
      const bool is_int8 = c.input == Type::qint8;
      const uint32_t x = b.input({rows, kDepth}, is_int8 ? Type::qint8 : Type::fp32);
      const uint32_t y = b.output({rows, kColumns}, is_int8 ? Type::qint8 : Type::fp32);
      const uint32_t bias =
          is_int8
              ? b.constant<int32_t>({kColumns}, std::vector<int32_t>(kColumns, 7), Type::qcint32)
              : b.constant<float>({kColumns}, random_floats(kColumns, 9));
      uint32_t w = kNoId, q = x;
      if (c.input == Type::qdint8) {
        q = b.internal({rows, kDepth}, Type::qdint8);
        b.per_token(q, 1);
        b.unary(Node::XNNConvert, x, q);
        if (c.filter == Type::qbint4) b.group_linear(q, y, bias);
        if (c.filter != Type::qbint4) b.channel_linear(q, y, c.filter, bias);
      } else {
        const auto numbers = random_floats(size_t{kDepth} * kColumns, 4);
        std::vector<int8_t> bytes;
        for (const float number : numbers)
          bytes.push_back(static_cast<int8_t>(std::clamp(100 * number, -128.0f, 127.0f)));
        w = c.filter == Type::fp32 ? b.constant<float>({kColumns, kDepth}, numbers)
                                   : b.constant<int8_t>({kColumns, kDepth}, bytes, c.filter);
        Floats scales(kColumns);
        for (size_t i = 0; i < kColumns; ++i) scales[i] = 0.01f + 1e-5f * static_cast<float>(i);
        if (c.filter != Type::fp32) b.per_channel(w, scales, 0);
        if (is_int8) {
          b.per_tensor(x, 0.02f, 3);
          b.per_tensor(y, 0.5f, -5);
          for (float& scale : scales) scale *= 0.02f;
          b.per_channel(bias, scales, 0);
        }
        b.linear(q, w, bias, y);
        if (named_data != nullptr) b.name_constant(w, "w", named_data);
      }
      return b.bytes();
    };
    MemoryNamedData named_data;
    const auto small = build(kFew, &named_data), large = build(kMany, &named_data);
    std::shared_ptr<BackendProgramState> state;
    auto whole = make_delegate(small, &named_data, &state, 2, false);
    auto parts = make_delegate(large, &named_data, &state, 2, false);
    ASSERT_TRUE(whole.ok()) << c.name << whole.status().message();
    ASSERT_TRUE(parts.ok()) << c.name << parts.status().message();
    const ScalarType type = c.input == Type::qint8 ? ScalarType::kChar : ScalarType::kFloat;
    const auto compute = [&](Delegate& delegate, int64_t rows) {
      HostTensor in(type, {rows, kDepth}), out(type, {rows, kColumns});
      const size_t count = static_cast<size_t>(rows) * kDepth;
      if (type == ScalarType::kFloat) {
        in.fill(random_floats(count, 5));
      } else {
        std::vector<int8_t> bytes(count);
        for (size_t i = 0; i < count; ++i) bytes[i] = static_cast<int8_t>(i * 37);
        in.fill(bytes);
      }
      EXPECT_TRUE(run(delegate, {&in, &out}).ok()) << c.name;
      Floats result;
      if (type == ScalarType::kFloat) return out.read<float>();
      for (const int8_t number : out.read<int8_t>()) result.push_back(number);
      return result;
    };
    const Floats expected = compute(**whole, kFew), got = compute(**parts, kMany);
    for (size_t i = 0; i < expected.size(); ++i) {
      ASSERT_NEAR(got[i], expected[i], 1e-4f + 1e-5f * std::fabs(expected[i]))
          << c.name << " row " << i / kColumns << " column " << i % kColumns;
    }
  }
}

TEST(XnnpackDelegate, PacksSharedWeightsOnce) {
  MemoryNamedData named_data;
  const auto payload = linear(4, &named_data).bytes();
  const auto other = linear(4, &named_data, 1).bytes();
  std::shared_ptr<BackendProgramState> state;
  auto first = make_delegate(payload, &named_data, &state);
  ASSERT_TRUE(first.ok()) << first.status().message();
  auto& weights = static_cast<ProgramState&>(*state).weights();
  EXPECT_EQ(weights.count(), 1u);
  EXPECT_EQ(weights.reuses(), 0u);
  auto second = make_delegate(payload, &named_data, &state);
  ASSERT_TRUE(second.ok());
  EXPECT_EQ(weights.count(), 1u);
  EXPECT_GE(weights.reuses(), 1u);
  first.value().reset();
  HostTensor out(ScalarType::kFloat, {4, kOut});
  expect_runs(**second, 4, &out);
}

TEST(XnnpackDelegate, KeepsWeightsApartThatAreUsedDifferently) {
  MemoryNamedData named_data;
  const auto payload = linear(4, &named_data).bytes();
  // The same bytes, read the other way round.
  const auto other = linear(4, &named_data, 1).bytes();
  MemoryNamedData shared;
  Floats ramp(kIn * kOut);
  for (size_t i = 0; i < ramp.size(); ++i) ramp[i] = static_cast<float>(i);
  const auto bytes = std::as_bytes(std::span(ramp));
  shared.add("w", {bytes.begin(), bytes.end()});
  std::shared_ptr<BackendProgramState> state;
  auto a = make_delegate(payload, &shared, &state);
  auto b = make_delegate(other, &shared, &state);
  ASSERT_TRUE(a.ok() && b.ok());
  HostTensor in(ScalarType::kFloat, {4, kIn}), out(ScalarType::kFloat, {4, kOut});
  in.tensor().data<float>()[1] = 1;  // picks column 1, or row 1
  ASSERT_TRUE(run(**a, {&in, &out}).ok());
  EXPECT_EQ(out.read<float>()[2], 2 * kIn + 1);
  ASSERT_TRUE(run(**b, {&in, &out}).ok());
  EXPECT_EQ(out.read<float>()[2], kOut + 2);
}

TEST(XnnpackDelegate, RunsFromSeveralThreads) {
  std::shared_ptr<BackendProgramState> state;
  const auto payload = linear(64, nullptr).bytes();
  std::vector<std::thread> threads;
  std::vector<std::unique_ptr<Delegate>> delegates;
  for (int i = 0; i < 4; ++i) {
    delegates.push_back(make_delegate(payload, nullptr, &state, 2).value());
  }
  for (auto& delegate : delegates) {
    threads.emplace_back([&delegate] {
      HostTensor out(ScalarType::kFloat, {64, kOut}, {}, Dynamism::kDynamicBound);
      for (int64_t rows : {3, 64, 7, 40, 1}) expect_runs(*delegate, rows, &out);
    });
  }
  for (auto& thread : threads) thread.join();
}

TEST(XnnpackDelegate, ReadsPayloadsWithoutHeader) {
  PayloadBuilder b = linear(2, nullptr);
  auto buffer = std::make_unique<fb::BufferT>();
  b.graph.constant_buffer.push_back(std::make_unique<fb::BufferT>());
  const auto* data = reinterpret_cast<const uint8_t*>(b.constants.data());
  buffer->storage.assign(data, data + b.constants.size());
  b.graph.constant_buffer.push_back(std::move(buffer));
  b.graph.constant_data.clear();
  const auto flatbuffer = b.flatbuffer_only();
  // Also where memory is not aligned.
  for (size_t shift : {0, 1}) {
    std::vector<std::byte> moved(shift);
    moved.insert(moved.end(), flatbuffer.begin(), flatbuffer.end());
    DelegateInit init;
    init.payload = std::span(moved).subspan(shift);
    std::shared_ptr<BackendProgramState> state;
    init.program_state = &state;
    auto delegate = find_backend("XnnpackBackend")->init(init);
    ASSERT_TRUE(delegate.ok()) << delegate.status().message();
    HostTensor out(ScalarType::kFloat, {2, kOut});
    expect_runs(**delegate, 2, &out);
  }
}

}  // namespace
}  // namespace edgewise::xnnpack
