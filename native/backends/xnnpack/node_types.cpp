#include "backends/xnnpack/node_types.h"

#include <algorithm>
#include <cmath>

#include "backends/xnnpack/limit_cpu.h"

namespace edgewise::xnnpack {
namespace {

using T = DataType;

struct Filtered {
  T input, filter, bias, output;
};

constexpr Filtered kConvolutions[] = {
    {T::kFp32, T::kFp32, T::kFp32, T::kFp32},
    {T::kFp16, T::kFp32, T::kFp32, T::kFp16},
    // Not XNNPACK's: see upcast_half.h.
    {T::kFp16, T::kFp16, T::kFp16, T::kFp16},
    // Nor these: see dequantize_weights.h.
    {T::kFp32, T::kQcint8, T::kFp32, T::kFp32},
    {T::kFp32, T::kQcint4, T::kFp32, T::kFp32},
    {T::kFp16, T::kQcint8, T::kFp32, T::kFp16},
    {T::kFp16, T::kQcint4, T::kFp32, T::kFp16},
    {T::kQint8, T::kQint8, T::kQint32, T::kQint8},
    {T::kQint8, T::kQcint8, T::kQcint32, T::kQint8},
    {T::kQuint8, T::kQuint8, T::kQint32, T::kQuint8},
    // The rest not for depthwise ones, the last not for transposed ones.
    {T::kQdint8, T::kQcint8, T::kFp32, T::kFp32},
    {T::kQdint8, T::kQcint8, T::kFp32, T::kFp16},
};
constexpr size_t kDepthwiseRows = 10;
constexpr size_t kTransposedRows = 11;

constexpr Filtered kFullyConnected[] = {
    {T::kFp32, T::kFp32, T::kFp32, T::kFp32},
    {T::kFp16, T::kFp32, T::kFp32, T::kFp16},
    {T::kFp16, T::kFp16, T::kFp16, T::kFp16},
    {T::kFp32, T::kQcint4, T::kFp32, T::kFp32},
    {T::kFp32, T::kQcint8, T::kFp32, T::kFp32},
    // Not XNNPACK's: see dequantize_weights.h.
    {T::kFp32, T::kQbint4, T::kFp32, T::kFp32},
    {T::kFp32, T::kQbint8, T::kFp32, T::kFp32},
    {T::kFp16, T::kQcint8, T::kFp32, T::kFp16},
    {T::kFp16, T::kQcint4, T::kFp32, T::kFp16},
    {T::kFp16, T::kQbint4, T::kFp32, T::kFp16},
    {T::kFp16, T::kQbint8, T::kFp32, T::kFp16},
    {T::kQdint8, T::kQcint4, T::kFp32, T::kFp32},
    {T::kQdint8, T::kQcint4, T::kFp32, T::kFp16},
    {T::kQdint8, T::kQbint4, T::kFp32, T::kFp32},
    {T::kQdint8, T::kQbint4, T::kFp32, T::kFp16},
    {T::kQdint8, T::kQcint8, T::kFp32, T::kFp32},
    {T::kQdint8, T::kQcint8, T::kFp32, T::kFp16},
    {T::kQint8, T::kQint8, T::kQint32, T::kQint8},
    {T::kQint8, T::kQcint8, T::kQcint32, T::kQint8},
    {T::kQuint8, T::kQuint8, T::kQint32, T::kQuint8},
};

// The bit of TypeSet that the type is, or 0.
uint8_t type_bit(T type) {
  if (type == T::kFp32) return kFloat32;
  if (type == T::kFp16) return kFloat16;
  if (is_quantized_8bit(type)) return kQuantized;
  return type == T::kInt32 ? kInt32 : 0;
}

// bfloat16 is taken where float16 is: see upcast_half.h.
T computed(T type) { return type == T::kBf16 ? T::kFp16 : type; }

struct Checker {
  const Graph& graph;
  const GraphNode& node;

  const GraphValue& in(size_t i) const { return graph.values[node.inputs[i]]; }
  const GraphValue& out(size_t i = 0) const { return graph.values[node.outputs[i]]; }
  bool has_bias() const { return node.inputs[2] != kNone; }

  Status refuse(const char* rule) const {
    std::string types;
    for (uint32_t input : node.inputs) {
      if (input != kNone) types += std::string(name_of(graph.values[input].type)) + ", ";
    }
    return node_error(Code::kUnsupported, node, "%s; got %sresult %s", rule, types.c_str(),
                      name_of(out().type));
  }

  Status check() const;
  Status check_filtered() const;
  Status check_unary() const;
  Status check_binary() const;
  Status check_bounds() const;
  // All inputs and the result have one type, of those that the kind takes.
  Status check_same() const;
  // What only moves elements must not change what they mean.
  Status check_moved() const;
  bool takes(T type) const { return (type_bit(computed(type)) & traits_of(node.kind).types) != 0; }
  bool ratio_within(float scale, float low, float high) const {
    const float ratio = scale / out().scale;
    return ratio >= low && ratio < high;
  }
};

Status Checker::check_same() const {
  const T type = out().type;
  for (uint32_t input : node.inputs) {
    if (graph.values[input].type != type) return refuse("its types must be the same");
  }
  return takes(type) ? Status() : refuse("it does not take these types");
}

Status Checker::check_moved() const {
  if (auto status = check_same(); !status.ok()) return status;
  if (!is_quantized_8bit(out().type)) return {};
  for (uint32_t input : node.inputs) {
    const GraphValue& value = graph.values[input];
    if (value.scale != out().scale || value.zero_point != out().zero_point) {
      return refuse("its scales and zero points must be the same");
    }
  }
  return {};
}

Status Checker::check_filtered() const {
  std::span<const Filtered> rows = kConvolutions;
  const bool is_fully_connected = node.kind == NodeKind::kFullyConnected;
  if (is_fully_connected) rows = kFullyConnected;
  if (node.kind == NodeKind::kDepthwiseConv2d) rows = rows.first(kDepthwiseRows);
  if (node.kind == NodeKind::kConvTranspose2d) rows = rows.first(kTransposedRows);
  // A product of bfloat16 is computed in float32, whatever float its bias and result are.
  const bool is_bfloat16 = in(0).type == T::kBf16;
  const auto is = [&](const GraphValue& value, T type) {
    return computed(value.type) == type || (is_bfloat16 && is_float(value.type) && is_float(type));
  };
  const bool is_row = std::any_of(rows.begin(), rows.end(), [&](const Filtered& row) {
    return is(in(0), row.input) && is(in(1), row.filter) && is(out(), row.output) &&
           (!has_bias() || is(in(2), row.bias));
  });
  if (!is_row) return refuse("it does not take these types together");
  // Weights are packed ahead; but fp32 ones may be the result of another node.
  const bool may_be_dynamic =
      is_fully_connected && in(0).type == T::kFp32 && in(1).type == T::kFp32;
  if (!may_be_dynamic && (!in(1).is_constant() || (has_bias() && !in(2).is_constant()))) {
    return refuse("its filter and bias must be constants");
  }
  const bool is_transposed = (node.flags & XNN_FLAG_TRANSPOSE_WEIGHTS) != 0;
  if ((in(1).type == T::kQbint4 || in(1).type == T::kQbint8) && is_transposed) {
    return refuse("weights in blocks must not be transposed");
  }
  if (in(0).type == T::kQdint8 && in(1).type == T::kQbint4 &&
      in(1).shape.last() / in(1).block_size % 2 != 0 && !takes_odd_groups()) {
    return refuse(
        "XNNPACK's kernels for x86 without AVX crash at an odd number of groups of 4-bit weights; "
        "try another size of groups, or 8-bit weights");
  }
  if (in(1).type == T::kQint8 && in(1).zero_point != 0) {
    return refuse("its filter's zero point must be 0");
  }
  if (is_per_channel(in(1).type)) {
    uint32_t expected = node.kind == NodeKind::kDepthwiseConv2d ? 3 : 0;
    if (is_fully_connected && is_transposed) expected = 1;
    if (in(1).channel_dim != expected) return refuse("its filter has scales for other channels");
    if (has_bias() && is_per_channel(in(2).type) && in(2).channel_dim != 0) {
      return refuse("its bias has scales for other channels");
    }
  }
  return {};
}

Status Checker::check_unary() const {
  const T input = in(0).type;
  const T output = out().type;
  if (node.kind == NodeKind::kConvert) {
    if (output == T::kQdint8) {
      return is_float(input) ? Status()
                             : refuse("only fp32, fp16 and bf16 are quantized at run time");
    }
    if (!takes(input) || !takes(output)) {
      return refuse("it does not take these types together");
    }
    if (input == output && is_quantized_8bit(input) &&
        !ratio_within(in(0).scale, 0x1p-8f, 0x1p7f)) {
      return refuse("its scales must be closer together");
    }
    return {};
  }
  if (auto status = check_same(); !status.ok()) return status;
  const bool is_q8 = is_quantized_8bit(output);
  if (node.kind == NodeKind::kLeakyReLU) {
    const float slope = node.number;
    if (!std::isfinite(slope)) return refuse("its slope must be finite");
    if (is_q8 && (!std::isnormal(slope) || !ratio_within(in(0).scale, 0x1p-8f, 0x1p7f) ||
                  !ratio_within(std::fabs(slope) * in(0).scale, 0x1p-8f, 0x1p7f))) {
      return refuse("its scales and slope must be closer together");
    }
  }
  if (node.kind == NodeKind::kELU && !(node.number > 0 && std::isnormal(node.number))) {
    return refuse("its alpha must be a normal positive number");
  }
  return {};
}

Status Checker::check_binary() const {
  if (auto status = check_same(); !status.ok()) return status;
  if (!is_quantized_8bit(out().type)) return {};
  // What XNNPACK's fixed-point arithmetic can express.
  const bool is_sum = node.kind == NodeKind::kAdd || node.kind == NodeKind::kSubtract;
  bool fits = true;
  if (is_sum) {
    fits =
        ratio_within(in(0).scale, 0x1p-10f, 0x1p8f) && ratio_within(in(1).scale, 0x1p-10f, 0x1p8f);
  } else if (node.kind == NodeKind::kMultiply) {
    fits = ratio_within(in(0).scale * in(1).scale, 0x1p-16f, 0x1p8f);
  }
  return fits ? Status() : refuse("its scales must be closer together");
}

// Bounds are only carried out by nodes that have them in XNNPACK.
Status Checker::check_bounds() const {
  if (!node.has_bounds || node.kind == NodeKind::kClamp) return {};
  switch (traits_of(node.kind).bounds) {
    case Bounds::kAlways:
      return {};
    case Bounds::kFloating:
      return out().type == T::kInt32 ? refuse("int32 results must not be bounded") : Status();
    default:
      return refuse("its result must not be bounded");
  }
}

Status Checker::check() const {
  if (auto status = check_bounds(); !status.ok()) return status;
  switch (traits_of(node.kind).rule) {
    case TypeRule::kFiltered:
      return check_filtered();
    case TypeRule::kBinary:
      return check_binary();
    case TypeRule::kMoved:
      if (node.kind == NodeKind::kStaticConstantPad && is_quantized_8bit(out().type) &&
          !std::isfinite(node.number)) {
        return refuse("what it pads with must be finite");
      }
      return check_moved();
    case TypeRule::kSame:
      // Some writers call the index fp32.
      if (node.kind == NodeKind::kArgMaxPooling2d && out(1).type != T::kInt32 &&
          out(1).type != T::kFp32) {
        return refuse("its index must be int32");
      }
      return check_same();
    default:
      return check_unary();
  }
}

}  // namespace

Status check_types(const Graph& graph) {
  for (const GraphNode& node : graph.nodes) {
    if (auto status = Checker{graph, node}.check(); !status.ok()) return status;
    for (uint32_t input : node.inputs) {
      if (input != kNone && graph.values[input].is_index) {
        return node_error(Code::kUnsupported, node, "it must not read the index of an argmax");
      }
    }
  }
  return {};
}

}  // namespace edgewise::xnnpack
