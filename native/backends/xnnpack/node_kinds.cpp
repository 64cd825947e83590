#include "backends/xnnpack/node_kinds.h"

#include <iterator>

namespace edgewise::xnnpack {
namespace {

constexpr NodeTraits kTraits[] = {
    {"none", xnn_unary_invalid, xnn_binary_invalid, TypeRule::kSame, 0, 0, Bounds::kNever, 0},
#define EDGEWISE_XNNPACK_NODE(name, table, unary, binary, rule, types, inputs, bounds, flags) \
  {#name, unary, binary, TypeRule::rule, types, inputs, Bounds::bounds, flags},
#include "backends/xnnpack/node_kinds.inc"
#undef EDGEWISE_XNNPACK_NODE
};

}  // namespace

const NodeTraits& traits_of(NodeKind kind) {
  const auto number = static_cast<size_t>(kind);
  return kTraits[number < std::size(kTraits) ? number : 0];
}

}  // namespace edgewise::xnnpack
