// Loops over few numbers, one after the other on one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace edgewise::xnnpack {

enum class ElementwiseKind : uint8_t {
  kCopy,
  kNegate,
  kSquare,
  kReciprocalSquareRoot,
  kSigmoid,
  kAdd,
  kSubtract,
  kMultiply,
  kDot,  // sums a * b over the last dimension, and adds c
};

// Three dimensions. Steps are floats from one element to the next; in the last dimension 0 or 1,
// and 1 in `out`. What is read must have kReadPadding bytes behind it.
struct ElementwiseLoop {
  ElementwiseKind kind = ElementwiseKind::kCopy;
  uint32_t counts[3] = {1, 1, 1};
  uint32_t a_steps[3] = {};
  uint32_t b_steps[3] = {};
  uint32_t out_steps[2] = {};
  const float* a = nullptr;
  const float* b = nullptr;  // null for one operand
  const float* c = nullptr;  // null: zero
  float* out = nullptr;
};

// A later loop may read what an earlier one writes.
void run_elementwise_loops(std::span<const ElementwiseLoop> loops);

}  // namespace edgewise::xnnpack
