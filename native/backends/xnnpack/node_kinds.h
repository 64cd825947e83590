// The kinds of nodes, and what holds for each: made of node_kinds.inc.
#pragma once

#include <xnnpack.h>

#include <cstdint>

// Payloads may have it though XNNPACK's later headers do not.
#ifndef XNN_FLAG_TENSORFLOW_RESHAPE_2D
#define XNN_FLAG_TENSORFLOW_RESHAPE_2D 0x00000004
#endif

namespace edgewise::xnnpack {

// The numbers are those of the payload's union.
enum class NodeKind : uint8_t {
  kNothing = 0,
#define EDGEWISE_XNNPACK_NODE(name, ...) k##name,
#include "backends/xnnpack/node_kinds.inc"
#undef EDGEWISE_XNNPACK_NODE
};

// How the types of operands and result go together.
enum class TypeRule : uint8_t { kUnary, kBinary, kSame, kMoved, kFiltered };

// Which results a node can bound, as a clamp behind it would: none, all but int32 ones, all.
enum class Bounds : uint8_t { kNever, kFloating, kAlways };

struct NodeTraits {
  const char* name;
  xnn_unary_operator unary;    // or xnn_unary_invalid
  xnn_binary_operator binary;  // or xnn_binary_invalid
  TypeRule rule;
  uint8_t types;   // bits of TypeSet
  uint8_t inputs;  // number of operands
  Bounds bounds;
  uint32_t flags;  // XNN_FLAG_* that it understands
};

enum TypeSet : uint8_t { kFloat32 = 1, kFloat16 = 2, kQuantized = 4, kInt32 = 8 };

// Of a kind that is not in the table: those of kNothing.
const NodeTraits& traits_of(NodeKind kind);

inline const char* name_of(NodeKind kind) { return traits_of(kind).name; }
inline bool is_binary(NodeKind kind) { return traits_of(kind).binary != xnn_binary_invalid; }

}  // namespace edgewise::xnnpack
