// Instruction fusion (a peephole pass): consecutive instructions that one kernel computes as well.
//
// A file spells in core operators what PyTorch has one operator for, so that every runtime of the
// format takes it: `linear` is a transposed copy and a product, `hardswish` four passes over
// memory. Such instructions are
// found when a method is read, and run as one call.
#pragma once

#include <optional>

#include "method_plan.h"

namespace edgewise {

// Instructions that together are an operator which the runtime has a kernel of.
struct Match {
  const char* kernel;
  uint32_t first, count;                // instructions
  std::vector<uint32_t> args;           // as FusedCall's
  std::vector<uint32_t> intermediates;  // their results but the last
  // The kernel reads an element, then writes the one at its index: the output may have an operand's
  // memory.
  bool elementwise = false;
};

// By their first instructions, the longest of each first. Only what they compute is looked at.
std::vector<Match> find_matches(const MethodPlan& plan);

// The fused calls of the method, by their first instructions; none overlap.
//
// Intermediate results are then not computed. So no other instruction may use them, nor read what
// has their memory before an instruction writes it (see output_binding.cpp).
std::vector<FusedCall> fuse_instructions(const MethodPlan& plan);

}  // namespace edgewise
