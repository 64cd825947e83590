// A part of a tensor replaced, by slices around it: what XNNPACK's operators give, copied no more
// than it must be.
#include <gtest/gtest.h>

#include <numeric>

#include "payload_builder.h"

#include "backends/xnnpack/executor/float_kernels.h"

namespace edgewise::xnnpack {
namespace {

using Node = fb::XNodeUnion;
using Floats = std::vector<float>;

constexpr uint32_t kRows = 24, kColumns = 200;
// In each test, where this CPU has kernels of ours.
const size_t kUpdates = float_kernels() == nullptr ? 0 : 2;

Floats ramp(size_t count, float first) {
  Floats result(count);
  std::iota(result.begin(), result.end(), first);
  return result;
}

void slice(PayloadBuilder& b, uint32_t in, uint32_t out, uint32_t axis, uint32_t start,
           uint32_t size, Dims sizes) {
  fb::XNNStaticSliceT table;
  table.num_dims = static_cast<uint32_t>(sizes.size());
  table.offsets.assign(sizes.size(), 0);
  table.offsets[axis] = start;
  sizes[axis] = size;
  table.sizes = std::move(sizes);
  table.input_id = in;
  table.output_id = out;
  b.node(Node::XNNStaticSlice, table);
}

// Of a [rows, columns] tensor: `out` is `x` with rows from `start` on replaced by `part`.
struct Update {
  uint32_t x, part, out, start, length;
};

void add_update(PayloadBuilder& b, const Update& u) {
  fb::_XNNCatT table;
  table.axis = 0;
  std::vector<uint32_t> pieces;
  const auto piece = [&](uint32_t start, uint32_t size) {
    const uint32_t id = b.internal({size, kColumns});
    slice(b, u.x, id, 0, start, size, {kRows, kColumns});
    pieces.push_back(id);
  };
  if (u.start > 0) piece(0, u.start);
  pieces.push_back(u.part);
  const uint32_t end = u.start + u.length;
  if (end < kRows) piece(end, kRows - end);
  table.input1_id = pieces[0];
  table.input2_id = pieces[1];
  table.input3_id = pieces.size() > 2 ? pieces[2] : kNoId;
  table.output_id = u.out;
  b.node(pieces.size() > 2 ? Node::XNNConcatenate3 : Node::XNNConcatenate2, table);
}

Floats replaced(Floats x, const Floats& part, size_t start) {
  std::copy(part.begin(), part.end(), x.begin() + static_cast<std::ptrdiff_t>(start * kColumns));
  return x;
}

struct Ran {
  std::vector<Floats> outputs;
  size_t updates = 0;  // steps that are such kernels
};

Ran run_with(const PayloadBuilder& b, const std::vector<std::pair<int64_t, Floats>>& inputs,
             size_t outputs, bool own_kernels) {
  const auto bytes = b.bytes();
  auto delegate = make_delegate(bytes, nullptr, nullptr, 2, own_kernels);
  EXPECT_TRUE(delegate.ok()) << delegate.status().message();
  if (!delegate.ok()) return {};
  std::vector<HostTensor> tensors;
  for (const auto& [rows, data] : inputs) {
    tensors.emplace_back(ScalarType::kFloat, std::vector<int64_t>{rows, kColumns});
    tensors.back().fill(data);
  }
  for (size_t i = 0; i < outputs; ++i) {
    tensors.emplace_back(ScalarType::kFloat, std::vector<int64_t>{kRows, kColumns});
  }
  std::vector<HostTensor*> arguments;
  for (HostTensor& tensor : tensors) arguments.push_back(&tensor);
  EXPECT_TRUE(run(**delegate, arguments).ok());
  Ran result;
  for (size_t i = inputs.size(); i < tensors.size(); ++i) {
    result.outputs.push_back(tensors[i].read<float>());
  }
  for (const DelegateOperation& one : (*delegate)->operations()) {
    result.updates += one.kernel == "edgewise Update";
  }
  return result;
}

class XnnpackUpdate : public testing::TestWithParam<std::pair<uint32_t, uint32_t>> {};

// Twice, so that the second one may write where the first one's result lies.
TEST_P(XnnpackUpdate, ReplacesRows) {
  const auto [start, length] = GetParam();
  PayloadBuilder b;
  const uint32_t x = b.input({kRows, kColumns}), part = b.input({length, kColumns});
  const uint32_t negated = b.internal({kRows, kColumns}), once = b.internal({kRows, kColumns});
  const uint32_t other = b.internal({length, kColumns}), twice = b.internal({kRows, kColumns});
  const uint32_t out = b.output({kRows, kColumns});
  b.unary(Node::XNNNegate, x, negated);
  add_update(b, {negated, part, once, start, length});
  b.unary(Node::XNNSquare, part, other);
  add_update(b, {once, other, twice, kRows - start - length, length});
  b.unary(Node::XNNNegate, twice, out);

  const Floats data = ramp(size_t{kRows} * kColumns, 1),
               row = ramp(size_t{length} * kColumns, 0.5f);
  Floats expected = data;
  for (float& number : expected) number = -number;
  expected = replaced(expected, row, start);
  Floats squares = row;
  for (float& number : squares) number *= number;
  expected = replaced(expected, squares, kRows - start - length);
  for (float& number : expected) number = -number;
  for (const bool own_kernels : {true, false}) {
    const Ran ran = run_with(b, {{kRows, data}, {length, row}}, 1, own_kernels);
    ASSERT_EQ(ran.outputs.size(), 1u);
    EXPECT_EQ(ran.outputs[0], expected);
    EXPECT_EQ(ran.updates, own_kernels ? kUpdates : 0u);
  }
}

INSTANTIATE_TEST_SUITE_P(All, XnnpackUpdate,
                         testing::Values(std::pair(0u, 1u), std::pair(5u, 3u), std::pair(23u, 1u),
                                         std::pair(0u, 23u)),
                         [](const auto& test) {
                           return std::to_string(test.param.second) + "From" +
                                  std::to_string(test.param.first);
                         });

// What is read afterwards, or belongs to the caller, stays as it is.
TEST(XnnpackUpdateGraph, LeavesATensorThatIsReadLater) {
  PayloadBuilder b;
  const uint32_t x = b.input({kRows, kColumns}), part = b.input({2, kColumns});
  const uint32_t negated = b.internal({kRows, kColumns}), updated = b.internal({kRows, kColumns});
  const uint32_t of_input = b.output({kRows, kColumns}), sum = b.output({kRows, kColumns});
  b.unary(Node::XNNNegate, x, negated);
  add_update(b, {negated, part, updated, 4, 2});
  add_update(b, {x, part, of_input, 7, 2});
  b.binary(Node::XNNAdd, updated, negated, sum);
  const Floats data = ramp(size_t{kRows} * kColumns, 1), row = ramp(size_t{2} * kColumns, 0.5f);
  Floats negative = data;
  for (float& number : negative) number = -number;
  Floats expected = replaced(negative, row, 4);
  for (size_t i = 0; i < expected.size(); ++i) expected[i] += negative[i];
  const Ran ran = run_with(b, {{kRows, data}, {2, row}}, 2, true);
  ASSERT_EQ(ran.outputs.size(), 2u);
  EXPECT_EQ(ran.outputs[0], replaced(data, row, 7));
  EXPECT_EQ(ran.outputs[1], expected);
  EXPECT_EQ(ran.updates, kUpdates);
}

// Rows that move by the way are no update.
TEST(XnnpackUpdateGraph, LeavesConcatenationsOfOtherSlices) {
  PayloadBuilder b;
  const uint32_t x = b.input({kRows + 1, kColumns}), part = b.input({2, kColumns});
  const uint32_t out = b.output({kRows, kColumns});
  fb::_XNNCatT table;
  const uint32_t first = b.internal({4, kColumns}), last = b.internal({kRows - 6, kColumns});
  slice(b, x, first, 0, 1, 4, {kRows + 1, kColumns});
  slice(b, x, last, 0, 7, kRows - 6, {kRows + 1, kColumns});
  table.axis = 0;
  table.input1_id = first;
  table.input2_id = part;
  table.input3_id = last;
  table.output_id = out;
  b.node(Node::XNNConcatenate3, table);
  const Floats data = ramp(size_t{kRows + 1} * kColumns, 1), row = ramp(size_t{2} * kColumns, 0.5f);
  const Ran ran = run_with(b, {{kRows + 1, data}, {2, row}}, 1, true);
  ASSERT_EQ(ran.outputs.size(), 1u);
  EXPECT_EQ(ran.outputs[0], replaced(Floats(data.begin() + kColumns, data.end()), row, 4));
  EXPECT_EQ(ran.updates, 0u);
}

}  // namespace
}  // namespace edgewise::xnnpack
