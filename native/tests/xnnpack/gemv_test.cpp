// Products of one row that run without XNNPACK: the same bits as when XNNPACK runs them.
#include "backends/xnnpack/gemv.h"

#include <gtest/gtest.h>

// First: it has the definitions of the payload's own header and more.
#include "payload_builder.h"

#include "random_values.h"

namespace edgewise::xnnpack {
namespace {

using Node = fb::XNodeUnion;

constexpr uint32_t kMostRows = 6, kDepth = 64;

#ifdef EDGEWISE_XNNPACK_PATCHED
constexpr size_t kOnce = 1;
#else
constexpr size_t kOnce = 0;
#endif

struct Case {
  std::string name;
  std::vector<uint32_t> columns;  // of each product
  int threads = 2;
  // What else there is of q, the input quantized.
  void (*add)(PayloadBuilder* b, uint32_t x, uint32_t q) = nullptr;
  size_t repeats = kOnce;  // in a second run
};

// A further product, of which XNNPACK reads the result.
void product_in_between(PayloadBuilder* b, uint32_t /*x*/, uint32_t q) {
  const uint32_t y = b->internal({kMostRows, kDepth}), z = b->internal({kMostRows, kDepth});
  const uint32_t p = b->internal({kMostRows, kDepth}, fb::XNNDatatype::qdint8);
  b->group_linear(q, y);
  b->unary(Node::XNNTanh, y, z);
  b->per_token(p, 1);
  b->unary(Node::XNNConvert, z, p);
  b->group_linear(p, b->output({kMostRows, 24}));
}

// A product of something else.
void product_of_another(PayloadBuilder* b, uint32_t x, uint32_t /*q*/) {
  const uint32_t p = b->internal({kMostRows, kDepth}, fb::XNNDatatype::qdint8);
  const uint32_t y = b->internal({kMostRows, kDepth});
  b->unary(Node::XNNTanh, x, y);
  b->per_token(p, 1);
  b->unary(Node::XNNConvert, y, p);
  b->group_linear(p, b->output({kMostRows, 24}));
}

const Case kCases[] = {
    {"One", {40}},
    {"OneThread", {64, 32}, 1},
    {"Three", {64, 32, 32}, 3},
    {"OfUnequalSizes", {16, 400, 7}},
    {"ManyTiles", {2000, 1000}},
    {"AsManyAsAreKept", {16, 32, 48, 64}},
    {"MoreThanAreKept", {16, 32, 48, 64, 80, 96}, 2, nullptr, 0},
    {"OneThatXnnpackReads", {16, 32}, 2, product_in_between, 0},
    {"OneOfAnotherInput", {16, 32}, 2, product_of_another, 0},
};

// [rows, kDepth], and the results.
struct Arguments {
  HostTensor in;
  std::vector<HostTensor> outs;

  Arguments(int64_t rows, const std::vector<uint32_t>& columns)
      : in(ScalarType::kFloat, {rows, kDepth}) {
    for (uint32_t count : columns) {
      outs.emplace_back(ScalarType::kFloat, std::vector<int64_t>{rows, count});
    }
  }
  void fill(uint32_t seed) {
    in.fill(random_floats(static_cast<size_t>(in.tensor().numel()), seed));
    for (HostTensor& out : outs) out.fill(Floats(static_cast<size_t>(out.tensor().numel())));
  }
};

class Rows : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    const Case& test = GetParam();
    PayloadBuilder b;
    const uint32_t x = b.input({kMostRows, kDepth});
    const uint32_t q = b.internal({kMostRows, kDepth}, fb::XNNDatatype::qdint8);
    b.per_token(q, 1);
    b.unary(Node::XNNConvert, x, q);
    if (test.add != nullptr) test.add(&b, x, q);
    for (uint32_t columns : test.columns) b.group_linear(q, b.output({kMostRows, columns}));
    for (uint32_t output : b.graph.output_ids) columns_.push_back(b.tensor(output).dims.back());
    payload_ = b.bytes();
    // Of our own kernels there are some for these nodes.
    auto delegate = make_delegate(payload_, nullptr, &state_, test.threads, false);
    auto reference = make_delegate(payload_, nullptr, nullptr, test.threads, false);
    ASSERT_TRUE(delegate.ok() && reference.ok()) << delegate.status().message();
    delegate_ = std::move(*delegate);
    reference_ = std::move(*reference);
  }

  // What is profiled is left to XNNPACK.
  static std::vector<Floats> run_with(Delegate& delegate, Arguments& arguments, bool is_profiled) {
    std::vector<Value*> all = {&arguments.in.value};
    for (HostTensor& out : arguments.outs) all.push_back(&out.value);
    if (is_profiled) {
      EXPECT_TRUE(delegate.prepare_profile().ok());
    }
    RunProfile profile;
    profile.start(16);
    const Status status =
        is_profiled ? delegate.execute_profiled(all, profile) : delegate.execute(all);
    EXPECT_TRUE(status.ok()) << status.message();
    std::vector<Floats> results;
    for (HostTensor& out : arguments.outs) results.push_back(out.read<float>());
    return results;
  }

  // Runs with new numbers; how often it did without XNNPACK.
  size_t check(Arguments& arguments, bool is_profiled = false) {
    arguments.fill(++seed_);
    const std::vector<Floats> expected = run_with(*reference_, arguments, true);
    arguments.fill(seed_);
    const size_t before = RecordedGemv::repeats();
    EXPECT_EQ(run_with(*delegate_, arguments, is_profiled), expected);
    return RecordedGemv::repeats() - before;
  }

  std::vector<uint32_t> columns_;
  std::shared_ptr<BackendProgramState> state_;
  uint32_t seed_ = 0;

 private:
  std::vector<std::byte> payload_;
  std::unique_ptr<Delegate> delegate_;
  std::unique_ptr<Delegate> reference_;
};

TEST_P(Rows, AreTheSameWithoutXnnpack) {
  Arguments row(1, columns_);
  EXPECT_EQ(check(row), 0u);
  EXPECT_EQ(check(row), GetParam().repeats);
  EXPECT_EQ(check(row), GetParam().repeats);
}

TEST_P(Rows, FollowTheArguments) {
  Arguments row(1, columns_), other(1, columns_);
  check(row);
  EXPECT_EQ(check(other), 0u);
  EXPECT_EQ(check(other), GetParam().repeats);
  EXPECT_EQ(check(row), 0u);
}

TEST_P(Rows, MayBeMoreAndOneAgain) {
  Arguments row(1, columns_), rows(kMostRows, columns_);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(check(row), 0u);
    EXPECT_EQ(check(row), GetParam().repeats);
    EXPECT_EQ(check(rows), 0u);
    EXPECT_EQ(check(rows), 0u);
  }
}

TEST_P(Rows, AreLeftToXnnpackWhileAProfileIsOpen) {
  Arguments row(1, columns_);
  check(row);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(check(row, true), 0u);
    check(row);
    EXPECT_EQ(check(row), GetParam().repeats);
  }
}

// XNNPACK keeps the quantized row in memory that all delegates of the program share.
TEST_P(Rows, FollowTheWorkspace) {
  Arguments row(1, columns_);
  check(row);
  check(row);
  PayloadBuilder b;
  const uint32_t x = b.input({500, 512}), q = b.internal({500, 512}, fb::XNNDatatype::qdint8);
  b.per_token(q, 1);
  b.unary(Node::XNNConvert, x, q);
  b.group_linear(q, b.output({500, 16}));
  const auto payload = b.bytes();
  auto larger = make_delegate(payload, nullptr, &state_, GetParam().threads, false);
  ASSERT_TRUE(larger.ok()) << larger.status().message();
  HostTensor in(ScalarType::kFloat, {500, 512}), out(ScalarType::kFloat, {500, 16});
  ASSERT_TRUE(run(**larger, {&in, &out}).ok());
  EXPECT_EQ(check(row), 0u);
  EXPECT_EQ(check(row), GetParam().repeats);
}

INSTANTIATE_TEST_SUITE_P(All, Rows, testing::ValuesIn(kCases),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace edgewise::xnnpack
