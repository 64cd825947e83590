// Which nodes of a graph are fused into a kernel, and that the graph computes what XNNPACK
// computes without them.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>

// First: it has the definitions of the payload's own header and more.
#include "payload_builder.h"

#include "backends/xnnpack/executor/kernel_table.h"
#include "backends/xnnpack/fold.h"
#include "backends/xnnpack/payload.h"
#include "backends/xnnpack/read_graph.h"
#include "backends/xnnpack/shapes.h"
#include "random_values.h"

namespace edgewise::xnnpack {
namespace {

using Node = fb::XNodeUnion;
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr uint32_t kChannels = 32;
constexpr uint32_t kSize = 24;
const Dims kImage = {1, kSize, kSize, kChannels};

size_t count_of(const Dims& dims) {
  size_t count = 1;
  for (uint32_t size : dims) count *= size;
  return count;
}

void convolve(PayloadBuilder* b, uint32_t in, uint32_t out, uint32_t seed = 7, uint32_t kernel = 3,
              bool is_depthwise = false) {
  fb::_XNNNodeConvT table;
  table.padding_top = table.padding_right = kernel / 2;
  table.padding_bottom = table.padding_left = kernel / 2;
  table.kernel_height = table.kernel_width = kernel;
  table.subsampling_height = table.subsampling_width = 1;
  table.dilation_height = table.dilation_width = 1;
  table.groups = is_depthwise ? kChannels : 1;
  table.group_input_channels = table.group_output_channels = is_depthwise ? 1 : kChannels;
  table.input1_id = in;
  const Dims filter = {is_depthwise ? 1 : kChannels, kernel, kernel, kChannels};
  table.filter_id = b->constant<float>(filter, random_floats(count_of(filter), seed));
  table.bias_id = b->constant<float>({kChannels}, random_floats(kChannels, seed + 1));
  table.output_id = out;
  b->node(is_depthwise ? Node::XNNDepthwiseConv2d : Node::XNNConv2d, table);
}

void connect(PayloadBuilder* b, uint32_t in, uint32_t out, uint32_t depth, uint32_t columns) {
  const uint32_t filter =
      b->constant<float>({columns, depth}, random_floats(size_t{columns} * depth, depth));
  const uint32_t bias = b->constant<float>({columns}, random_floats(columns, 3));
  b->linear(in, filter, bias, out);
}

void transpose(PayloadBuilder* b, uint32_t in, uint32_t out, std::vector<uint32_t> order) {
  fb::XNNStaticTransposeT table;
  table.num_dims = static_cast<uint32_t>(order.size());
  table.perm = std::move(order);
  table.input_id = in;
  table.output_id = out;
  b->node(Node::XNNStaticTranspose, table);
}

void reshape(PayloadBuilder* b, uint32_t in, uint32_t out, const Dims& shape) {
  fb::XNNStaticReshapeT table;
  table.num_dims = static_cast<uint32_t>(shape.size());
  table.new_shape = shape;
  table.input_id = in;
  table.output_id = out;
  b->node(Node::XNNStaticReshape, table);
}

void slice(PayloadBuilder* b, uint32_t in, uint32_t out, const Dims& offsets, const Dims& sizes) {
  fb::XNNStaticSliceT table;
  table.num_dims = static_cast<uint32_t>(sizes.size());
  table.offsets = offsets;
  table.sizes = sizes;
  table.input_id = in;
  table.output_id = out;
  b->node(Node::XNNStaticSlice, table);
}

void concatenate(PayloadBuilder* b, uint32_t first, uint32_t second, uint32_t out, int32_t axis) {
  fb::_XNNCatT table;
  table.axis = axis;
  table.input1_id = first;
  table.input2_id = second;
  table.output_id = out;
  b->node(Node::XNNConcatenate2, table);
}

// x / sqrt(mean of its squares) * weights.
void normalize(PayloadBuilder* b, uint32_t in, uint32_t out, uint32_t rows, uint32_t depth) {
  const Dims row = {1, rows, 1}, all = {1, rows, depth};
  const uint32_t square = b->internal(all), mean = b->internal(row), root = b->internal(row);
  const uint32_t scaled = b->internal(all);
  b->unary(Node::XNNSquare, in, square);
  const uint32_t filter =
      b->constant<float>({1, depth}, Floats(depth, 1 / static_cast<float>(depth)));
  const uint32_t bias = b->constant<float>({1}, {1e-3f});
  b->linear(square, filter, bias, mean);
  b->unary(Node::XNNReciprocalSquareRoot, mean, root);
  b->binary(Node::XNNMultiply, in, root, scaled);
  b->binary(Node::XNNMultiply, b->constant<float>({depth}, random_floats(depth, 5)), scaled, out);
}

// A layer norm of rows: with `weights` and a bias, or neither. The difference goes to `difference`.
void normalize_layer(PayloadBuilder* b, uint32_t in, uint32_t difference, uint32_t out,
                     uint32_t rows, uint32_t depth, bool weights, float last_factor) {
  const Dims row = {1, rows, 1}, all = {1, rows, depth};
  const uint32_t mean = b->internal(row), square = b->internal(all), variance = b->internal(row);
  const uint32_t root = b->internal(row);
  Floats factors(depth, 1 / static_cast<float>(depth));
  const uint32_t none = b->constant<float>({1}, {0.0f});
  b->linear(in, b->constant<float>({1, depth}, factors), none, mean);
  b->binary(Node::XNNSubtract, in, mean, difference);
  b->unary(Node::XNNSquare, difference, square);
  factors.back() = last_factor;
  b->linear(square, b->constant<float>({1, depth}, factors), b->constant<float>({1}, {1e-5f}),
            variance);
  b->unary(Node::XNNReciprocalSquareRoot, variance, root);
  if (!weights) {
    b->binary(Node::XNNMultiply, root, difference, out);
    return;
  }
  const uint32_t scaled = b->internal(all), weighted = b->internal(all);
  b->binary(Node::XNNMultiply, root, difference, scaled);
  b->binary(Node::XNNMultiply, scaled, b->constant<float>({depth}, random_floats(depth, 5)),
            weighted);
  b->binary(Node::XNNAdd, b->constant<float>({1, depth}, random_floats(depth, 6)), weighted, out);
}

// Halves of each head's row turn by an angle: x * cosines + (-second half, first half) * sines.
void rotate(PayloadBuilder* b, uint32_t in, uint32_t out, uint32_t rows, uint32_t heads,
            uint32_t depth) {
  const Dims all = {1, rows, heads, depth}, half = {1, rows, heads, depth / 2};
  const Dims of_row = {1, rows, 1, depth};
  const uint32_t x = b->internal(all), first = b->internal(half), second = b->internal(half);
  const uint32_t minus = b->internal(half), turned = b->internal(all);
  const uint32_t cosine = b->internal(all), sine = b->internal(all);
  const auto number = [&](uint32_t seed) {
    return b->constant<float>(of_row, random_floats(rows * depth, seed));
  };
  reshape(b, in, x, all);
  b->binary(Node::XNNMultiply, x, number(6), cosine);
  slice(b, x, first, {0, 0, 0, 0}, half);
  slice(b, x, second, {0, 0, 0, depth / 2}, half);
  b->binary(Node::XNNMultiply, second, b->constant<float>({1}, {-1}), minus);
  concatenate(b, minus, first, turned, 3);
  b->binary(Node::XNNMultiply, turned, number(7), sine);
  b->binary(Node::XNNAdd, cosine, sine, out);
}

struct GraphCase {
  const char* name;
  std::vector<size_t> nodes;  // of each fused kernel, in order
  std::vector<Dims> inputs;
  std::vector<Dims> outputs;
  std::function<void(PayloadBuilder*, const std::vector<uint32_t>&, const std::vector<uint32_t>&)>
      build;  // inputs, outputs
};
using Ids = std::vector<uint32_t>;

// Queries, keys, values -> output; each source's order of (batch, heads, tokens, depth).
GraphCase attention(const char* name, Dims queries, Dims keys, Ids order, Ids key_order, Ids back) {
  const auto moved = [](const Dims& dims, const Ids& by) {
    Dims result;
    for (uint32_t axis : by) result.push_back(dims[axis]);
    return result;
  };
  const Dims q = moved(queries, order), k = moved(keys, key_order), v = moved(keys, order);
  const uint32_t tokens = v[2];
  const Dims output = moved(q, back);
  return {name,
          {7},
          {queries, keys, keys},
          {output},
          [=](PayloadBuilder* b, const Ids& in, const Ids& out) {
            const uint32_t tq = b->internal(q), tk = b->internal(k), tv = b->internal(v);
            const uint32_t scores = b->internal({q[0], q[1], q[2], tokens});
            const uint32_t weights = b->internal({q[0], q[1], q[2], tokens});
            const uint32_t mixed = b->internal(q);
            transpose(b, in[0], tq, order);
            transpose(b, in[1], tk, key_order);
            const bool is_transposed = key_order[2] == 3;
            b->binary(Node::XNNBatchMatrixMultiply, tq, tk, scores, is_transposed ? 0 : 1);
            b->unary(Node::XNNSoftmax, scores, weights);
            transpose(b, in[2], tv, order);
            b->binary(Node::XNNBatchMatrixMultiply, weights, tv, mixed);
            transpose(b, mixed, out[0], back);
          }};
}

// The same of heads that lie in front: queries, keys, values and a mask that is added.
GraphCase heads_in_front(const char* name, std::vector<size_t> nodes, Dims queries, Dims keys,
                         Dims mask, bool is_constant) {
  const Dims values = {keys[0], keys[2], keys[1]};
  std::vector<Dims> inputs = {queries, keys, values};
  if (!is_constant) inputs.push_back(mask);
  return {name,
          std::move(nodes),
          inputs,
          {queries},
          [=](PayloadBuilder* b, const Ids& in, const Ids& out) {
            const Dims all = {queries[0], queries[1], keys[2]};
            const uint32_t scores = b->internal(all), sum = b->internal(all);
            const uint32_t weights = b->internal(all);
            const uint32_t added =
                is_constant ? b->constant<float>(mask, random_floats(count_of(mask), 9)) : in[3];
            b->binary(Node::XNNBatchMatrixMultiply, in[0], in[1], scores);
            b->binary(Node::XNNAdd, added, scores, sum);
            b->unary(Node::XNNSoftmax, sum, weights);
            b->binary(Node::XNNBatchMatrixMultiply, weights, in[2], out[0]);
          }};
}

// Of one root: see fused_unary.cpp.
#if defined(__x86_64__) || defined(__i386__)
const std::vector<size_t> kRootsOfOurs = {1};
#else
const std::vector<size_t> kRootsOfOurs = {};
#endif

const GraphCase kCases[] = {
    {"Convolution",
     {1},
     {kImage},
     {kImage},
     [](PayloadBuilder* b, const Ids& in, const Ids& out) { convolve(b, in[0], out[0]); }},
    {"ResidualAndClamp",
     {3},
     {kImage},
     {kImage},
     [](PayloadBuilder* b, const Ids& in, const Ids& out) {
       const uint32_t y = b->internal(kImage), sum = b->internal(kImage);
       convolve(b, in[0], y);
       b->binary(Node::XNNAdd, in[0], y, sum);
       b->unary(Node::XNNClamp, sum, out[0]);
       b->bound(-10, 30);
     }},
    {"ResidualWithBounds",
     {2},
     {kImage},
     {kImage},
     [](PayloadBuilder* b, const Ids& in, const Ids& out) {
       const uint32_t y = b->internal(kImage);
       convolve(b, in[0], y);
       b->binary(Node::XNNAdd, y, in[0], out[0]);
       b->bound(0, kInfinity);
     }},
    {"ClampBeforeTheResidual",
     {1},
     {kImage},
     {kImage},
     [](PayloadBuilder* b, const Ids& in, const Ids& out) {
       const uint32_t y = b->internal(kImage);
       convolve(b, in[0], y);
       b->bound(0, kInfinity);
       b->binary(Node::XNNAdd, y, in[0], out[0]);
     }},
    {"ClampThatDoesNotMeetTheBounds",
     {2},
     {kImage},
     {kImage},
     [](PayloadBuilder* b, const Ids& in, const Ids& out) {
       const uint32_t y = b->internal(kImage), sum = b->internal(kImage);
       convolve(b, in[0], y);
       b->binary(Node::XNNAdd, y, in[0], sum);
       b->bound(0, 1);
       b->unary(Node::XNNClamp, sum, out[0]);
       b->bound(2, 3);
     }},
    {"ResultThatIsReadTwice",
     {1},
     {kImage},
     {kImage, kImage},
     [](PayloadBuilder* b, const Ids& in, const Ids& out) {
       convolve(b, in[0], out[0]);
       b->binary(Node::XNNAdd, out[0], in[0], out[1]);
     }},
    {"ResidualThatIsRepeated",
     {1},
     {kImage, {1, 1, 1, kChannels}},
     {kImage},
     [](PayloadBuilder* b, const Ids& in, const Ids& out) {
       const uint32_t y = b->internal(kImage);
       convolve(b, in[0], y);
       b->binary(Node::XNNAdd, y, in[1], out[0]);
     }},
    {"DoubledResult",
     {1},
     {kImage},
     {kImage},
     [](PayloadBuilder* b, const Ids& in, const Ids& out) {
       const uint32_t y = b->internal(kImage);
       convolve(b, in[0], y);
       b->binary(Node::XNNAdd, y, y, out[0]);
     }},
    {"SumOfTwoConvolutions",
     {2, 1},
     {kImage},
     {kImage},
     [](PayloadBuilder* b, const Ids& in, const Ids& out) {
       const uint32_t y = b->internal(kImage), z = b->internal(kImage);
       convolve(b, in[0], y);
       convolve(b, in[0], z, 9);
       b->binary(Node::XNNAdd, y, z, out[0]);
     }},
    {"BetweenOtherNodes",
     {1, 1},
     {kImage},
     {kImage},
     [](PayloadBuilder* b, const Ids& in, const Ids& out) {
       uint32_t ids[5];
       for (uint32_t& id : ids) id = b->internal(kImage);
       b->unary(Node::XNNSigmoid, in[0], ids[0]);
       convolve(b, ids[0], ids[1]);
       b->unary(Node::XNNTanh, ids[1], ids[2]);
       b->binary(Node::XNNMultiply, ids[0], ids[2], ids[3]);
       convolve(b, ids[3], ids[4]);
       b->binary(Node::XNNSubtract, ids[4], ids[0], out[0]);
     }},
    {"ProductsWithReshapes",
     {1, 1},
     {{256, 256}},
     {{4, 64, 256}},
     [](PayloadBuilder* b, const Ids& in, const Ids& out) {
       const uint32_t h = b->internal({256, 512}), r = b->internal({4, 64, 512});
       const uint32_t g = b->internal({4, 64, 512}), s = b->internal({256, 512});
       const uint32_t y = b->internal({256, 256});
       connect(b, in[0], h, 256, 512);
       reshape(b, h, r, {4, 64, 512});
       b->unary(Node::XNNTanh, r, g);
       reshape(b, g, s, {256, 512});
       connect(b, s, y, 512, 256);
       reshape(b, y, out[0], {4, 64, 256});
     }},
    {"ReshapedInputs",
     {1},
     {{4, 30}, {256, 256}},
     {{2, 60}, {4, 64, 512}},
     [](PayloadBuilder* b, const Ids& in, const Ids& out) {
       const uint32_t r = b->internal({5, 24}), s = b->internal({2, 60}), t = b->internal({2, 60});
       const uint32_t k = b->internal({4, 64, 256}), w = b->internal({256, 256});
       const uint32_t y = b->internal({256, 512});
       reshape(b, in[0], r, {5, 24});
       reshape(b, r, s, {2, 60});
       b->unary(Node::XNNTanh, s, t);
       reshape(b, in[1], k, {4, 64, 256});
       reshape(b, k, w, {256, 256});
       connect(b, w, y, 256, 512);
       b->binary(Node::XNNAdd, t, s, out[0]);
       reshape(b, y, out[1], {4, 64, 512});
     }},
    {"SmallNormalization",
     {5},
     {{1, 3, 40}},
     {{1, 3, 40}},
     [](PayloadBuilder* b, const Ids& in, const Ids& out) { normalize(b, in[0], out[0], 3, 40); }},
    {"SmallRotation",
     {8},
     {{1, 2, 96}},
     {{1, 2, 6, 16}},
     [](PayloadBuilder* b, const Ids& in, const Ids& out) { rotate(b, in[0], out[0], 2, 6, 16); }},
    {"SmallNodesBetweenProducts",
     {3, 6},
     {{1, 1, 64}},
     {{1, 1, 64}},
     [](PayloadBuilder* b, const Ids& in, const Ids& out) {
       const Dims wide = {1, 1, 96};
       const uint32_t gate = b->internal(wide), up = b->internal(wide), power = b->internal(wide);
       const uint32_t swish = b->internal(wide), inner = b->internal(wide);
       const uint32_t down = b->internal({1, 1, 64}), sum = b->internal({1, 1, 64});
       connect(b, in[0], gate, 64, 96);
       b->unary(Node::XNNSigmoid, gate, power);
       b->binary(Node::XNNMultiply, gate, power, swish);
       connect(b, in[0], up, 64, 96);
       b->binary(Node::XNNMultiply, swish, up, inner);
       connect(b, inner, down, 96, 64);
       b->binary(Node::XNNAdd, down, in[0], sum);
       normalize(b, sum, out[0], 1, 64);
     }},
    // The product cannot wait for the second half of the nodes, nor these begin before it.
    {"SmallNodesAroundAProduct",
     {3, 4},
     {{1, 20}},
     {{1, 20}, {1, 20}},
     [](PayloadBuilder* b, const Ids& in, const Ids& out) {
       uint32_t ids[6];
       for (uint32_t& id : ids) id = b->internal({1, 20});
       b->unary(Node::XNNSigmoid, in[0], ids[0]);
       b->binary(Node::XNNSubtract, ids[0], in[0], ids[1]);
       b->unary(Node::XNNNegate, ids[1], ids[2]);
       connect(b, ids[2], ids[3], 20, 20);
       b->binary(Node::XNNSubtract, ids[2], ids[1], ids[4]);
       b->unary(Node::XNNSquare, ids[4], ids[5]);
       b->binary(Node::XNNMultiply, ids[3], ids[5], out[0]);
       b->binary(Node::XNNSubtract, ids[5], ids[3], out[1]);
     }},
    {"SmallNodesThatOthersRead",
     {3},
     {{2, 30}},
     {{2, 30}, {5, 12}, {2, 30}},
     [](PayloadBuilder* b, const Ids& in, const Ids& out) {
       b->unary(Node::XNNSigmoid, in[0], out[0]);
       reshape(b, out[0], out[1], {5, 12});
       b->binary(Node::XNNAdd, out[0], in[0], out[2]);
     }},
    {"TwoSmallNodes",
     {},
     {{2, 30}},
     {{2, 30}},
     [](PayloadBuilder* b, const Ids& in, const Ids& out) {
       const uint32_t y = b->internal({2, 30});
       b->unary(Node::XNNSigmoid, in[0], y);
       b->binary(Node::XNNMultiply, y, in[0], out[0]);
     }},
    {"SmallNodesBesideALargeOne",
     {},
     {{1, 30}, {600, 30}},
     {{600, 30}},
     [](PayloadBuilder* b, const Ids& in, const Ids& out) {
       uint32_t ids[3];
       for (uint32_t& id : ids) id = b->internal({1, 30});
       b->unary(Node::XNNSigmoid, in[0], ids[0]);
       b->unary(Node::XNNSquare, ids[0], ids[1]);
       b->unary(Node::XNNNegate, ids[1], ids[2]);
       b->binary(Node::XNNMultiply, ids[2], in[1], out[0]);
     }},
    {"SmallNodesWithBounds",
     {},
     {{2, 30}},
     {{2, 30}},
     [](PayloadBuilder* b, const Ids& in, const Ids& out) {
       const uint32_t y = b->internal({2, 30}), z = b->internal({2, 30});
       b->unary(Node::XNNSigmoid, in[0], y);
       b->binary(Node::XNNMultiply, y, in[0], z);
       b->bound(0, 1);
       b->unary(Node::XNNNegate, z, out[0]);
     }},
    {"LayerNorm",
     {8},
     {{1, 200, 129}},
     {{1, 200, 129}},
     [](PayloadBuilder* b, const Ids& in, const Ids& out) {
       normalize_layer(b, in[0], b->internal({1, 200, 129}), out[0], 200, 129, true, 1 / 129.0f);
     }},
    {"LayerNormWithoutWeights",
     {6},
     {{1, 70, 256}},
     {{1, 70, 256}},
     [](PayloadBuilder* b, const Ids& in, const Ids& out) {
       normalize_layer(b, in[0], b->internal({1, 70, 256}), out[0], 70, 256, false, 1 / 256.0f);
     }},
    {"LayerNormWhoseDifferenceIsRead",  // only the root mean square of the difference
     {6},
     {{1, 70, 256}},
     {{1, 70, 256}, {1, 70, 256}},
     [](PayloadBuilder* b, const Ids& in, const Ids& out) {
       normalize_layer(b, in[0], out[1], out[0], 70, 256, true, 1 / 256.0f);
     }},
    {"LayerNormOfUnequalFactors",  // roots on x86 alone
     kRootsOfOurs,
     {{1, 70, 256}},
     {{1, 70, 256}},
     [](PayloadBuilder* b, const Ids& in, const Ids& out) {
       normalize_layer(b, in[0], b->internal({1, 70, 256}), out[0], 70, 256, true, 1 / 200.0f);
     }},
    {"RootMeanSquareNorm",
     {5},
     {{1, 100, 200}},
     {{1, 100, 200}},
     [](PayloadBuilder* b, const Ids& in, const Ids& out) {
       normalize(b, in[0], out[0], 100, 200);
     }},
    {"ProductReshapedBeforeASum",
     {3},
     {{200, 256}, {1, 200, 256}},
     {{1, 200, 256}},
     [](PayloadBuilder* b, const Ids& in, const Ids& out) {
       const uint32_t product = b->internal({200, 256}), reshaped = b->internal({1, 200, 256});
       connect(b, in[0], product, 256, 256);
       reshape(b, product, reshaped, {1, 200, 256});
       b->binary(Node::XNNAdd, in[1], reshaped, out[0]);
     }},
    {"ProductOfOtherRowsBeforeASum",
     {1},
     {{200, 256}, {400, 128}},
     {{400, 128}},
     [](PayloadBuilder* b, const Ids& in, const Ids& out) {
       const uint32_t product = b->internal({200, 256}), reshaped = b->internal({400, 128});
       connect(b, in[0], product, 256, 256);
       reshape(b, product, reshaped, {400, 128});
       b->binary(Node::XNNAdd, in[1], reshaped, out[0]);
     }},
    attention("BatchFirst", {2, 100, 3, 64}, {2, 100, 3, 64}, {0, 2, 1, 3}, {0, 2, 1, 3},
              {0, 2, 1, 3}),
    attention("TokensFirst", {197, 1, 3, 32}, {197, 1, 3, 32}, {1, 2, 0, 3}, {1, 2, 0, 3},
              {2, 0, 1, 3}),
    attention("TransposedKeys", {1, 100, 5, 64}, {1, 100, 5, 64}, {0, 2, 1, 3}, {0, 2, 3, 1},
              {0, 2, 1, 3}),
    heads_in_front("MaskOfInput", {4}, {4, 100, 64}, {4, 64, 120}, {100, 120}, false),
    heads_in_front("ConstantMask", {4}, {4, 100, 64}, {4, 64, 100}, {4, 100, 100}, true),
    heads_in_front("MaskOfKeys", {4}, {4, 100, 64}, {4, 64, 100}, {1, 1, 100}, false),
    heads_in_front("MaskOfQueries", {1, 1}, {4, 192, 128}, {4, 128, 192}, {1, 192, 1}, false),
    {"AttentionOfRanksThatAreWrong",  // as a damaged file declares them; what nodes make counts
     {7},
     {{2, 100, 3, 64}, {2, 100, 3, 64}, {2, 100, 3, 64}},
     {{2, 100, 3, 64}},
     [](PayloadBuilder* b, const Ids& in, const Ids& out) {
       const uint32_t q = b->internal({600, 64}), k = b->internal({2, 3, 2, 50, 64});
       const uint32_t v = b->internal({1}), scores = b->internal({6, 100, 100});
       const uint32_t weights = b->internal({1}), mixed = b->internal({1, 1, 1, 1, 1, 1});
       transpose(b, in[0], q, {0, 2, 1, 3});
       transpose(b, in[1], k, {0, 2, 1, 3});
       b->binary(Node::XNNBatchMatrixMultiply, q, k, scores, 1);
       b->unary(Node::XNNSoftmax, scores, weights);
       transpose(b, in[2], v, {0, 2, 1, 3});
       b->binary(Node::XNNBatchMatrixMultiply, weights, v, mixed);
       transpose(b, mixed, out[0], {0, 2, 1, 3});
     }},
    attention("OtherKeys", {1, 200, 4, 64}, {1, 77, 4, 64}, {0, 2, 1, 3}, {0, 2, 1, 3},
              {0, 2, 1, 3}),
};

struct Built {
  std::vector<std::byte> payload;
  std::vector<Floats> inputs;
};

Built build(const GraphCase& test) {
  PayloadBuilder b;
  Ids inputs, outputs;
  Built built;
  for (const Dims& dims : test.inputs) {
    inputs.push_back(b.input(dims));
    built.inputs.push_back(random_floats(count_of(dims), inputs.back() + 1));
  }
  for (const Dims& dims : test.outputs) outputs.push_back(b.output(dims));
  test.build(&b, inputs, outputs);
  built.payload = b.bytes();
  return built;
}

std::vector<Floats> run_case(const GraphCase& test, const Built& built, bool own_kernels,
                             std::shared_ptr<BackendProgramState>* state = nullptr) {
  auto delegate = make_delegate(built.payload, nullptr, state, 2, own_kernels);
  EXPECT_TRUE(delegate.ok()) << delegate.status().message();
  if (!delegate.ok()) return {};
  std::vector<std::unique_ptr<HostTensor>> tensors;
  const auto add = [&](const Dims& dims) {
    tensors.push_back(std::make_unique<HostTensor>(ScalarType::kFloat,
                                                   std::vector<int64_t>(dims.begin(), dims.end())));
  };
  for (size_t i = 0; i < test.inputs.size(); ++i) {
    add(test.inputs[i]);
    tensors.back()->fill(built.inputs[i]);
  }
  for (const Dims& dims : test.outputs) add(dims);
  std::vector<HostTensor*> arguments;
  for (auto& tensor : tensors) arguments.push_back(tensor.get());
  const Status status = run(**delegate, arguments);
  EXPECT_TRUE(status.ok()) << status.message();
  std::vector<Floats> results;
  for (size_t i = test.inputs.size(); i < tensors.size(); ++i) {
    results.push_back(tensors[i]->read<float>());
  }
  return results;
}

class FusionsOfGraph : public testing::TestWithParam<GraphCase> {};

TEST_P(FusionsOfGraph, AreChosen) {
  const Built built = build(GetParam());
  auto payload = open_payload(built.payload);
  ASSERT_TRUE(payload.ok());
  auto graph = read_graph(*payload, nullptr);
  ASSERT_TRUE(graph.ok()) << graph.status().message();
  fold_nodes(&*graph);
  std::vector<Shape> shapes = graph->serialized_shapes();
  ASSERT_TRUE(infer_shapes(*graph, &shapes).ok());
  const std::vector<const FloatKernels*> all = all_float_kernels();
  const FloatKernels* kernels = all.empty() ? nullptr : all.back();
  if (kernels == nullptr || !kernels->gemm_pays)
    GTEST_SKIP() << "products are not worth it on this CPU";
  std::vector<size_t> sizes;
  for (const Fusion& fusion : choose_kernels(*graph, shapes, kernels).fusions) {
    sizes.push_back(fusion.nodes.size());
  }
  EXPECT_EQ(sizes, GetParam().nodes);
  EXPECT_TRUE(choose_kernels(*graph, shapes, nullptr).fusions.empty());
}

// XNNPACK's results have errors of their own: up to some thousand roundings.
TEST_P(FusionsOfGraph, ComputeWhatXnnpackDoes) {
  const Built built = build(GetParam());
  const auto ours = run_case(GetParam(), built, true);
  const auto theirs = run_case(GetParam(), built, false);
  ASSERT_EQ(ours.size(), theirs.size());
  for (size_t k = 0; k < ours.size(); ++k) {
    float largest = 0, worst = 0;
    for (size_t i = 0; i < ours[k].size(); ++i) {
      largest = std::max(largest, std::abs(theirs[k][i]));
      const float difference = std::abs(ours[k][i] - theirs[k][i]);
      worst = difference <= worst ? worst : difference;
    }
    EXPECT_GT(largest, 0);
    EXPECT_LE(worst, 4e-6f * largest);
  }
}

INSTANTIATE_TEST_SUITE_P(All, FusionsOfGraph, testing::ValuesIn(kCases),
                         [](const auto& test) { return std::string(test.param.name); });

// The memory between steps moves when the second one needs more.
TEST(FusedKernels, DelegatesShareMemory) {
  const GraphCase& small = kCases[9];
  const GraphCase& large = kCases[10];
  ASSERT_STREQ(small.name, "BetweenOtherNodes");
  std::shared_ptr<BackendProgramState> state;
  const Built built = build(small), other = build(large);
  auto delegate = make_delegate(built.payload, nullptr, &state, 2);
  ASSERT_TRUE(delegate.ok());
  const std::vector<int64_t> sizes(kImage.begin(), kImage.end());
  HostTensor x(ScalarType::kFloat, sizes), out(ScalarType::kFloat, sizes);
  x.fill(built.inputs[0]);
  ASSERT_TRUE(run(**delegate, {&x, &out}).ok());
  const Floats before = out.read<float>();
  EXPECT_EQ(run_case(large, other, true, &state), run_case(large, other, true));
  out.fill(Floats(before.size(), 0));
  ASSERT_TRUE(run(**delegate, {&x, &out}).ok());
  EXPECT_EQ(out.read<float>(), before);
}

TEST(FusedKernels, DelegatesShareWeights) {
  PayloadBuilder b;
  const uint32_t x = b.input(kImage), out = b.output(kImage);
  convolve(&b, x, out);
  MemoryNamedData data;
  b.name_constant(x + 2, "filter", &data);
  b.name_constant(x + 3, "bias", &data);
  std::shared_ptr<BackendProgramState> state;
  const auto payload = b.bytes();
  auto one = make_delegate(payload, &data, &state), other = make_delegate(payload, &data, &state);
  ASSERT_TRUE(one.ok() && other.ok());
  const PackedWeights& weights = static_cast<ProgramState&>(*state).weights();
  EXPECT_EQ(weights.count(), 1u);
  EXPECT_EQ(weights.reuses(), 1u);
}

TEST(FusedKernels, FollowShapes) {
  const GraphCase& test = kCases[1];
  const Built built = build(test);
  auto delegate = make_delegate(built.payload, nullptr, nullptr, 2);
  auto plain = make_delegate(built.payload, nullptr, nullptr, 2, false);
  ASSERT_TRUE(delegate.ok() && plain.ok());
  for (const auto& [batch, height, width] :
       {std::tuple{1, 24, 24}, {1, 7, 5}, {3, 9, 24}, {1, 1, 1}, {1, 24, 24}, {2, 40, 33}}) {
    const std::vector<int64_t> sizes = {batch, height, width, kChannels};
    HostTensor x(ScalarType::kFloat, sizes);
    x.fill(random_floats(static_cast<size_t>(x.tensor().numel()), 3));
    HostTensor out(ScalarType::kFloat, sizes), expected(ScalarType::kFloat, sizes);
    const Status status = run(**delegate, {&x, &out});
    ASSERT_TRUE(status.ok()) << status.message();
    ASSERT_TRUE(run(**plain, {&x, &expected}).ok());
    const Floats got = out.read<float>(), right = expected.read<float>();
    const float largest =
        std::abs(*std::ranges::max_element(right, {}, [](float y) { return std::abs(y); }));
    for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], right[i], 1e-5f * largest) << i;
  }
}

// What is added may be one image for all, or the result one for all that is added.
TEST(FusedKernels, FollowShapesOfResiduals) {
  constexpr uint32_t kMost = 4;
  const Dims most = {kMost, kSize, kSize, kChannels};
  struct Kind {
    const char* name;
    void (*build)(PayloadBuilder* b, uint32_t in, uint32_t out);
  };
  const Kind kinds[] = {
      {"Winograd", [](PayloadBuilder* b, uint32_t in, uint32_t out) { convolve(b, in, out); }},
      {"GEMM", [](PayloadBuilder* b, uint32_t in,
                  uint32_t out) { connect(b, in, out, kChannels, kChannels); }},
      {"Depthwise",
       [](PayloadBuilder* b, uint32_t in, uint32_t out) {
         const uint32_t between = b->internal({kMost, kSize, kSize, kChannels});
         convolve(b, in, between, 3, 3, true);
         convolve(b, between, out, 5, 1);
       }},
  };
  for (const Kind& kind : kinds) {
    SCOPED_TRACE(kind.name);
    PayloadBuilder b;
    const uint32_t x = b.input(most), added = b.input(most), out = b.output(most);
    const uint32_t y = b.internal(most);
    kind.build(&b, x, y);
    b.binary(Node::XNNAdd, y, added, out);
    const auto payload = b.bytes();
    auto delegate = make_delegate(payload, nullptr, nullptr, 2);
    auto plain = make_delegate(payload, nullptr, nullptr, 2, false);
    ASSERT_TRUE(delegate.ok() && plain.ok());
    for (const auto& [images, residuals] :
         {std::pair{4, 4}, {4, 1}, {1, 4}, {3, 3}, {1, 1}, {2, 1}}) {
      const auto sizes = [](int batch) {
        return std::vector<int64_t>{batch, kSize, kSize, kChannels};
      };
      HostTensor image(ScalarType::kFloat, sizes(images));
      HostTensor residual(ScalarType::kFloat, sizes(residuals));
      image.fill(random_floats(static_cast<size_t>(image.tensor().numel()), 3));
      residual.fill(random_floats(static_cast<size_t>(residual.tensor().numel()), 4));
      HostTensor got(ScalarType::kFloat, sizes(std::max(images, residuals)));
      HostTensor expected(ScalarType::kFloat, sizes(std::max(images, residuals)));
      ASSERT_TRUE(run(**delegate, {&image, &residual, &got}).ok());
      ASSERT_TRUE(run(**plain, {&image, &residual, &expected}).ok());
      const Floats right = expected.read<float>(), ours = got.read<float>();
      for (size_t i = 0; i < right.size(); ++i) ASSERT_NEAR(ours[i], right[i], 3e-4f) << i;
    }
  }
}

// Many rows run in XNNPACK, few in loops of ours, and either may come first.
TEST(FusedKernels, SmallAndLargeSizesTakeTurns) {
  constexpr uint32_t kDepth = 64;
  for (const bool starts_small : {false, true}) {
    PayloadBuilder b;
    const Dims most = {400, kDepth};
    const uint32_t x = b.input(most), out = b.output(most);
    const uint32_t power = b.internal(most), swish = b.internal(most), sum = b.internal(most);
    b.unary(Node::XNNSigmoid, x, power);
    b.binary(Node::XNNMultiply, x, power, swish);
    b.binary(Node::XNNAdd, swish, power, sum);
    connect(&b, sum, out, kDepth, kDepth);
    const auto payload = b.bytes();
    auto delegate = make_delegate(payload, nullptr, nullptr, 2);
    auto plain = make_delegate(payload, nullptr, nullptr, 2, false);
    ASSERT_TRUE(delegate.ok() && plain.ok());
    std::vector<int64_t> order = {400, 1, 3, 300, 1, 256, 257, 2};
    if (starts_small) order.insert(order.begin(), 2);
    for (const int64_t rows : order) {
      const std::vector<int64_t> sizes = {rows, kDepth};
      HostTensor in(ScalarType::kFloat, sizes);
      in.fill(random_floats(static_cast<size_t>(in.tensor().numel()), 3));
      HostTensor got(ScalarType::kFloat, sizes), expected(ScalarType::kFloat, sizes);
      ASSERT_TRUE(run(**delegate, {&in, &got}).ok()) << rows;
      ASSERT_TRUE(run(**plain, {&in, &expected}).ok()) << rows;
      const Floats ours = got.read<float>(), theirs = expected.read<float>();
      for (size_t i = 0; i < ours.size(); ++i) ASSERT_NEAR(ours[i], theirs[i], 2e-4f) << rows;
    }
  }
}

}  // namespace
}  // namespace edgewise::xnnpack
