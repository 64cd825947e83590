// Nodes that only move elements, by XNNPACK: its operators go by the elements' size.
#include <bit>

#include "backends/xnnpack/executor/xnnpack_operator.h"

namespace edgewise::xnnpack {
namespace {

// Offsets, sizes and paddings of a node, as XNNPACK takes them.
std::array<size_t, kMaxRank> sizes_of(const std::vector<uint32_t>& list) {
  std::array<size_t, kMaxRank> result{};
  std::copy_n(list.begin(), std::min(list.size(), kMaxRank), result.begin());
  return result;
}

// IEEE half precision, rounded to the nearest even.
uint16_t to_half(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>(bits >> 16 & 0x8000);
  const float magnitude = std::fabs(value);
  if (std::isnan(value)) return sign | 0x7e00;
  if (magnitude >= 65520.0f) return sign | 0x7c00;
  if (magnitude < 0x1p-14f) {
    return sign | static_cast<uint16_t>(std::lrint(magnitude * 0x1p24f));
  }
  const uint32_t odd = bits >> 13 & 1;
  const uint32_t rounded = (bits & 0x7fffffff) + 0xfff + odd;
  return sign | static_cast<uint16_t>((rounded >> 13) - (112 << 10));
}

// The bits of what a node pads with.
uint32_t padding_bits(const OperatorNode& n) {
  const GraphValue& out = n.out();
  const float value = n.node.number;
  switch (out.type) {
    case DataType::kQint8:
      return static_cast<uint8_t>(quantized<int8_t>(value, out.scale, out.zero_point));
    case DataType::kQuint8:
      return quantized<uint8_t>(value, out.scale, out.zero_point);
    case DataType::kFp16:
      return to_half(value);
    default:
      return std::bit_cast<uint32_t>(value);
  }
}

template <typename Functions, typename Create, typename Reshape>
xnn_status add(const Functions& f, Create create, Reshape reshape,
               std::vector<OperatorCalls>* calls) {
  return add_operator(f.name, calls, create, reshape,
                      [f](xnn_operator_t op, const OperatorAddresses& to) {
                        return f.setup(op, to.in[0], to.out[0]);
                      });
}

// Of operators that take two numbers for each dimension.
template <typename Functions>
auto reshape_by_lists(const OperatorNode& n, const Functions& f) {
  return [f, first = sizes_of(n.node.list), second = sizes_of(n.node.list2)](
             xnn_operator_t op, const OperatorSizes& sizes) {
    const Shape& in = sizes.in();
    return f.reshape(op, in.rank, in.dims.data(), first.data(), second.data(), sizes.threads);
  };
}

struct Slice {
  template <typename Functions>
  static xnn_status make(const OperatorNode& n, const Functions& f,
                         std::vector<OperatorCalls>* calls) {
    return add(
        f, [&](xnn_operator_t* op) { return f.create(0, op); }, reshape_by_lists(n, f), calls);
  }
};

struct Pad {
  template <typename Functions>
  static xnn_status make(const OperatorNode& n, const Functions& f,
                         std::vector<OperatorCalls>* calls) {
    const uint32_t padding = padding_bits(n);
    return add(
        f, [&](xnn_operator_t* op) { return f.create(&padding, 0, op); }, reshape_by_lists(n, f),
        calls);
  }
};

struct Transpose {
  template <typename Functions>
  static xnn_status make(const OperatorNode& n, const Functions& f,
                         std::vector<OperatorCalls>* calls) {
    return add(
        f, [&](xnn_operator_t* op) { return f.create(0, op); },
        [f, permutation = sizes_of(n.node.list)](xnn_operator_t op, const OperatorSizes& sizes) {
          const Shape& in = sizes.in();
          return f.reshape(op, in.rank, in.dims.data(), permutation.data(), sizes.threads);
        },
        calls);
  }
};

// Of a whole tensor, or of each input of a concatenation to its place.
struct Copy {
  template <typename Functions>
  static xnn_status make(const OperatorNode& n, const Functions& f,
                         std::vector<OperatorCalls>* calls) {
    for (size_t i = 0; i < n.node.inputs.size(); ++i) {
      const xnn_status status = make_one(n, f, i, calls);
      if (status != xnn_status_success) return status;
    }
    return xnn_status_success;
  }

  // Elements that lie side by side in an input, in all of them, and in those before `index`.
  struct Run {
    size_t count = 1, own = 0, all = 0, before = 0;
  };

  static Run run_of(const GraphNode& node, const std::vector<Shape>& shapes, size_t index) {
    const Shape& first = shapes[node.inputs[0]];
    const size_t axis = node.is_concatenation() ? node.axis_in(first.rank) : 0;
    Run run{.count = first.leading(axis)};
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const size_t own = shapes[node.inputs[i]].elements() / run.count;
      if (i < index) run.before += own;
      if (i == index) run.own = own;
      run.all += own;
    }
    return run;
  }

  template <typename Functions>
  static xnn_status make_one(const OperatorNode& n, const Functions& f, size_t index,
                             std::vector<OperatorCalls>* calls) {
    const auto offset = std::make_shared<size_t>();  // bytes
    const size_t bytes = bits_of(n.out().type) / 8;
    return add_operator(
        f.name, calls, [&](xnn_operator_t* op) { return f.create(0, op); },
        [=](xnn_operator_t op, const OperatorSizes& sizes) {
          const Run run = run_of(sizes.node, sizes.shapes, index);
          *offset = run.before * bytes;
          return f.reshape(op, run.count, run.own, run.own, run.all, sizes.threads);
        },
        [=](xnn_operator_t op, const OperatorAddresses& to) {
          auto* out = static_cast<std::byte*>(to.out[0].data) + *offset;
          return f.setup(op, to.in[index].data, out);
        });
  }
};

template <typename Kind, typename One, typename Two, typename Four>
xnn_status make_by_size(const OperatorNode& n, const One& one, const Two& two, const Four& four,
                        std::vector<OperatorCalls>* calls) {
  switch (bits_of(n.out().type)) {
    case 8:
      return Kind::make(n, one, calls);
    case 16:
      return Kind::make(n, two, calls);
    default:
      return Kind::make(n, four, calls);
  }
}

#define EDGEWISE_MAKE_BY_SIZE(kind, family)                                                      \
  make_by_size<kind>(n, EDGEWISE_XNN_OPERATOR(family##_x8), EDGEWISE_XNN_OPERATOR(family##_x16), \
                     EDGEWISE_XNN_OPERATOR(family##_x32), calls)

}  // namespace

xnn_status make_moving(const OperatorNode& n, std::vector<OperatorCalls>* calls) {
  switch (n.node.kind) {
    case NodeKind::kStaticSlice:
      return EDGEWISE_MAKE_BY_SIZE(Slice, slice_nd);
    case NodeKind::kStaticConstantPad:
      return EDGEWISE_MAKE_BY_SIZE(Pad, constant_pad_nd);
    case NodeKind::kStaticTranspose:
      return EDGEWISE_MAKE_BY_SIZE(Transpose, transpose_nd);
    default:
      return EDGEWISE_MAKE_BY_SIZE(Copy, copy_nc);
  }
}

}  // namespace edgewise::xnnpack
