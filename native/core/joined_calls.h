// Instructions in a row that one kernel of the runtime computes as well.
//
// A file spells in core operators what PyTorch has one operator for, so that every runtime of the
// format takes it: `linear` is a transposed copy and a product, `hardswish` four passes over
// memory. What a method holds of that is found when it is read, and runs as one call.
#pragma once

#include <optional>

#include "method_plan.h"

namespace edgewise {

// Instructions that spell an operator which the runtime has a kernel of.
struct Match {
  const char* kernel;
  uint32_t first, count;          // instructions
  std::vector<uint32_t> args;     // as JoinedCall's
  std::vector<uint32_t> between;  // their results but the last
  // The kernel reads an element, then writes the one in its place: the output may lie where an
  // operand does.
  bool elementwise = false;
};

// By their first instructions, the longest of each first. Only what they compute is looked at.
std::vector<Match> find_matches(const MethodPlan& plan);

// All of the method, by their first instructions; none overlap.
//
// The results between the instructions are then not computed. So nobody else may read them, nor
// what lies in their memory without an instruction that writes it there (see output_binding.cpp).
std::vector<JoinedCall> find_joined_calls(const MethodPlan& plan);

}  // namespace edgewise
