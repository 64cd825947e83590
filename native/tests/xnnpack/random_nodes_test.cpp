// Single nodes with random parameters, sensible and absurd: refused or run, never a crash.
#include <gtest/gtest.h>

#include <random>

#include "payload_builder.h"

namespace edgewise::xnnpack {
namespace {

using Node = fb::XNodeUnion;
using Type = fb::XNNDatatype;
constexpr size_t kCapacity = 1 << 18;  // elements of an output that is run

struct Random {
  std::mt19937 engine;

  uint32_t below(uint32_t bound) { return static_cast<uint32_t>(engine() % bound); }
  uint32_t size() { return 1 + below(9); }
  // Mostly small.
  uint32_t number(uint32_t usual) {
    static constexpr uint32_t kOdd[] = {0, 17, 255, 4096, 16384, 65536, 0x7fffffff, 0xffffffff};
    return below(40) == 0 ? kOdd[below(8)] : usual;
  }
  float real() {
    static constexpr float kOdd[] = {0, -1, 1e30f, -1e-30f, INFINITY, NAN};
    return below(20) == 0 ? kOdd[below(6)] : static_cast<float>(below(200)) / 100;
  }
};

struct Maker {
  Random& random;
  PayloadBuilder b;
  Type type = Type::fp32;

  Dims dims(uint32_t rank) {
    Dims result(rank);
    for (uint32_t& size : result) size = random.size();
    return result;
  }
  uint32_t typed(uint32_t id) {
    if (type == Type::qint8) b.per_tensor(id, 0.25f, 1);
    return id;
  }
  uint32_t in(Dims dims) { return typed(b.input(std::move(dims), type)); }
  uint32_t out(uint32_t rank) { return typed(b.output(Dims(rank, 1), type)); }

  void windowed(Node node, fb::_XNNNodeConvT table) {
    const bool is_depthwise = node == Node::XNNDepthwiseConv2d;
    table.groups = 1 + random.below(4);
    table.group_input_channels = is_depthwise ? 1 : 1 + random.below(6);
    table.group_output_channels = 1 + random.below(is_depthwise ? 2 : 6);
    const uint32_t ins = table.groups * table.group_input_channels;
    const uint32_t outs = table.groups * table.group_output_channels;
    table.kernel_height = 1 + random.below(7);
    table.kernel_width = 1 + random.below(7);
    Dims filter = {outs, table.kernel_height, table.kernel_width, table.group_input_channels};
    if (is_depthwise) filter = {1, table.kernel_height, table.kernel_width, outs};
    size_t count = 1;
    for (uint32_t size : filter) count *= size;
    table.input1_id = in({random.below(3) + 1, random.below(20) + 1, random.below(20) + 1, ins});
    if (type == Type::qint8) {
      table.filter_id = b.constant<int8_t>(filter, std::vector<int8_t>(count, 3), type);
      b.per_tensor(table.filter_id, 0.01f, 0);
      table.bias_id = b.constant<int32_t>({outs}, std::vector<int32_t>(outs, 5), Type::qint32);
      b.per_tensor(table.bias_id, 0.0025f, 0);
    } else {
      table.filter_id = b.constant<float>(filter, std::vector<float>(count, 0.5f), type);
      table.bias_id = b.constant<float>({outs}, std::vector<float>(outs, 1), type);
    }
    if (random.below(3) == 0) table.bias_id = kNoId;
    table.padding_top = random.number(random.below(4));
    table.padding_right = random.number(random.below(4));
    table.padding_bottom = random.number(random.below(4));
    table.padding_left = random.number(random.below(4));
    table.subsampling_height = random.number(1 + random.below(3));
    table.subsampling_width = random.number(1 + random.below(3));
    table.dilation_height = random.number(1 + random.below(3) / 2);
    table.dilation_width = random.number(1 + random.below(3) / 2);
    table.adjustment_height = random.number(random.below(2));
    table.adjustment_width = random.number(random.below(2));
    if (random.below(8) == 0) table.kernel_width = random.number(table.kernel_width);
    if (random.below(8) == 0) table.flags = 4;
    table.output_id = out(4);
    b.node(node, table);
  }
  void pooling(Node node) {
    fb::_XNNPooling2DT table;
    table.input_id =
        in({1 + random.below(2), 1 + random.below(16), 1 + random.below(16), 1 + random.below(40)});
    table.pooling_height = random.number(1 + random.below(6));
    table.pooling_width = random.number(1 + random.below(6));
    table.stride_height = random.number(1 + random.below(4));
    table.stride_width = random.number(1 + random.below(4));
    table.dilation_height = table.dilation_width = random.number(1);
    table.padding_top = random.number(random.below(3));
    table.padding_left = random.number(random.below(3));
    table.padding_bottom = random.number(random.below(3));
    table.padding_right = random.number(random.below(3));
    table.output_id = out(4);
    b.node(node, table);
  }
  void make() {
    const uint32_t choice = random.below(6);
    if (choice < 2) type = Type::qint8;
    if (choice == 2) type = Type::fp16;
    switch (random.below(14)) {
      case 0:
        return windowed(Node::XNNConv2d, {});
      case 1:
        return windowed(Node::XNNDepthwiseConv2d, {});
      case 2:
        return windowed(Node::XNNConvTranspose2d, {});
      case 3:
        return pooling(Node::XNNMaxPooling2d);
      case 4:
        return pooling(Node::XNNAvgPooling2d);
      case 5: {
        fb::XNNStaticResizeBilinear2DT table;
        table.input_id = in(dims(4));
        table.new_height = random.number(random.size());
        table.new_width = random.number(random.size());
        table.flags = random.below(3) * 4;
        table.output_id = out(4);
        b.node(Node::XNNStaticResizeBilinear2D, table);
        return;
      }
      case 6: {
        const uint32_t rank = 1 + random.below(6);
        fb::XNNStaticConstantPadT table;
        table.input_id = in(dims(rank));
        for (uint32_t i = 0; i < rank; ++i) {
          table.pre_paddings.push_back(random.number(random.below(2)));
          table.post_paddings.push_back(random.number(random.below(2)));
        }
        table.padding_value = random.real();
        table.output_id = out(rank);
        b.node(Node::XNNStaticConstantPad, table);
        return;
      }
      case 7: {
        const uint32_t rank = 1 + random.below(6);
        fb::XNNStaticSliceT table;
        const uint32_t x = table.input_id = in(dims(rank));
        table.num_dims = rank;
        for (uint32_t i = 0; i < rank; ++i) {
          const uint32_t size = b.tensor(x).dims[i];
          table.offsets.push_back(random.number(random.below(size)));
          table.sizes.push_back(random.number(random.below(size + 1 - table.offsets[i] % size)));
        }
        table.output_id = out(rank);
        b.node(Node::XNNStaticSlice, table);
        return;
      }
      case 8: {
        const uint32_t rank = 1 + random.below(6);
        fb::XNNStaticTransposeT table;
        table.input_id = in(dims(rank));
        table.num_dims = rank;
        for (uint32_t i = 0; i < rank; ++i) table.perm.push_back(i);
        std::shuffle(table.perm.begin(), table.perm.end(), random.engine);
        table.perm[0] = random.number(table.perm[0]);
        table.output_id = out(rank);
        b.node(Node::XNNStaticTranspose, table);
        return;
      }
      case 9: {
        const uint32_t rank = 1 + random.below(5);
        Dims a = dims(rank), c = a;
        for (uint32_t& size : a) size = random.below(3) == 0 ? 1 : size;
        for (uint32_t& size : c) size = random.below(3) == 0 ? 1 : size;
        const auto node =
            Node(std::initializer_list<int>{1, 8, 12, 15, 16, 26, 31}.begin()[random.below(7)]);
        const uint32_t x = in(a), y = in(c);
        b.binary(node, x, y, out(rank));
        if (random.below(3) == 0) b.bound(random.real() - 1, random.real());
        return;
      }
      case 10: {
        const uint32_t rank = 2 + random.below(4);
        Dims a = dims(rank), c = dims(rank);
        for (uint32_t i = 0; i + 2 < rank; ++i) c[i] = random.below(2) == 0 ? 1 : a[i];
        const uint32_t flags = random.below(2);
        c[rank - 2 + flags] = random.number(a[rank - 1]);
        const uint32_t x = in(a), y = in(c);
        b.binary(Node::XNNBatchMatrixMultiply, x, y, out(rank), flags);
        return;
      }
      case 11: {
        fb::_XNNCatT table;
        const uint32_t rank = 1 + random.below(4);
        const Dims shape = dims(rank);
        table.axis =
            random.below(6) == 0 ? static_cast<uint32_t>(-1) : random.number(random.below(rank));
        table.input1_id = in(shape);
        table.input2_id = in(shape);
        table.input3_id = in(shape);
        table.output_id = out(rank);
        b.node(Node::XNNConcatenate3, table);
        return;
      }
      case 12: {
        const uint32_t rank = random.below(5);
        const uint32_t x = in(dims(rank));
        // All of these have one input and one output.
        const auto node = Node(std::initializer_list<int>{3,  4,  6,  17, 18, 19, 22, 23, 24, 27,
                                                          28, 30, 40, 41, 42, 43, 44, 45, 46, 47}
                                   .begin()[random.below(20)]);
        b.unary(node, x, out(rank), random.below(2) * 0x40);
        if (node == Node::XNNClamp) b.bound(random.real() - 1, random.real());
        return;
      }
      default: {
        fb::XNNFullyConnectedT table;
        const uint32_t rows = random.size(), ins = 1 + random.below(70),
                       outs = 1 + random.below(40);
        type = Type::fp32;
        const uint32_t x = b.input({rows, ins});
        const uint32_t q = b.internal({rows, ins}, Type::qdint8);
        b.per_token(q, 1);
        b.unary(Node::XNNConvert, x, q);
        const uint32_t real = random.number(ins);
        table.input1_id = q;
        table.filter_id = b.constant<int8_t>({outs, real}, std::vector<int8_t>(outs * ins, 1),
                                             random.below(2) == 0 ? Type::qcint8 : Type::qcint4);
        b.per_channel(table.filter_id, std::vector<float>(outs, 0.5f), 0);
        table.bias_id = kNoId;
        table.output_id = b.output({rows, outs});
        b.node(Node::XNNFullyConnected, table);
        return;
      }
    }
  }
};

ScalarType scalar_type(Type type) {
  if (type == Type::fp16) return ScalarType::kHalf;
  return type == Type::qint8 ? ScalarType::kChar : ScalarType::kFloat;
}

bool run_round(uint32_t seed) {
  Random random{std::mt19937(seed)};
  Maker maker{random, {}, Type::fp32};
  maker.make();
  const auto bytes = maker.b.bytes();
  auto delegate = make_delegate(bytes);
  if (!delegate.ok()) return false;
  std::vector<std::unique_ptr<HostTensor>> tensors;
  std::vector<HostTensor*> arguments;
  for (uint32_t id : maker.b.graph.input_ids) {
    const auto& tensor = maker.b.tensor(id);
    tensors.push_back(
        std::make_unique<HostTensor>(scalar_type(tensor.datatype),
                                     std::vector<int64_t>(tensor.dims.begin(), tensor.dims.end())));
  }
  const auto& output = maker.b.tensor(maker.b.graph.output_ids[0]);
  std::vector<int64_t> sizes(output.dims.size(), 1);
  if (!sizes.empty()) sizes[0] = kCapacity;
  tensors.push_back(std::make_unique<HostTensor>(scalar_type(output.datatype), sizes,
                                                 std::vector<uint8_t>{}, Dynamism::kDynamicBound));
  for (auto& tensor : tensors) arguments.push_back(tensor.get());
  return run(**delegate, arguments).ok();
}

TEST(XnnpackRandomNodes, AreRefusedOrRun) {
  constexpr uint32_t kRounds = 8000;
  uint32_t ran = 0;
  for (uint32_t seed = 0; seed < kRounds; ++seed) ran += run_round(seed);
  // Else it tests nothing.
  EXPECT_GT(ran, kRounds / 2);
}

}  // namespace
}  // namespace edgewise::xnnpack
