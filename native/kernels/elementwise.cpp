#include "elementwise.h"

#include <algorithm>
#include <string>

namespace edgewise {
inline namespace HWY_NAMESPACE {
namespace {

constexpr int64_t kBlock = 512;

// Broadcasts, resizes `out`; views of the operands come out expanded.
Status prepare(KernelContext& context, std::span<const Operand> operands,
               std::span<ScalarView> scalars, std::span<View> views, Tensor* out,
               ElementwiseTypes types, bool rounds_numbers) {
  Dims sizes;
  for (const Operand& operand : operands) {
    if (!operand.tensor) continue;
    if (!is_computable(operand.tensor->type())) {
      return context.fail(Code::kUnsupported,
                          "computes on floating, integer and bool types; got %s",
                          operand.tensor->describe().c_str());
    }
    const Status fits = broadcast(operand.tensor->sizes(), sizes);
    if (!fits.ok()) return context.fail(fits.code(), "%s", fits.message().c_str());
  }
  if (!can_store(types.result, out->type())) {
    return context.fail(Code::kInvalidArgument,
                        "the result is %s, which an output may only widen; got an output of %s",
                        std::string(to_string(types.result)).c_str(), out->describe().c_str());
  }
  for (const Operand& operand : operands) {
    if (operand.tensor == out && !std::ranges::equal(out->sizes(), sizes.span())) {
      return context.fail(Code::kInvalidProgram,
                          "an operand may be the output if it has the result's shape; got %s",
                          out->describe().c_str());
    }
  }
  const Status resized = out->resize(sizes);
  if (!resized.ok()) return context.fail(resized.code(), "output: %s", resized.message().c_str());
  for (size_t k = 0; k < operands.size(); ++k) {
    View view = operands[k].tensor ? view_of(*operands[k].tensor) : scalars[k].view();
    // Numbers do not widen a type: they wrap to it, and some operations round them to it first.
    const bool narrows = is_integral(types.common) || (rounds_numbers && is_half(types.common));
    if (view.sizes.size() == 0 && view.type != types.common && narrows) {
      view = scalars[k].narrow(view, types.common);
    }
    views[k] = view.expand(sizes);
  }
  return {};
}

// The type as which operands are read: the common one, or one that the operation has a loop for
// and that gives the same.
ScalarType reading_type(const Operation& operation, ScalarType common, ScalarType out) {
  if (operation.condition) return common;
  if (is_integral(common)) {
    // A wider output would show the bits that wrap.
    const bool own = out == common || (operation.to_bool && out == ScalarType::kBool);
    if (own && operation.loop(common)) return common;
    if (own && is_short(common) && operation.loop(ScalarType::kInt)) return ScalarType::kInt;
    if (operation.loop(ScalarType::kLong)) return ScalarType::kLong;
  }
  if (out == common && operation.loop(common)) return common;
  const bool single = common != ScalarType::kDouble && operation.loop(ScalarType::kFloat);
  return single ? ScalarType::kFloat : ScalarType::kDouble;
}

// Repeats the last of `count` elements up to `end`: it takes no path that the others do not.
void repeat_last(size_t size, std::byte* block, int64_t count, int64_t end) {
  const std::byte* last = block + static_cast<size_t>(count - 1) * size;
  for (int64_t i = count; i < end; ++i)
    std::memcpy(block + static_cast<size_t>(i) * size, last, size);
}

struct Plan {
  View out;
  std::array<View, kMostOperands> inputs;
  size_t count = 0;
  std::array<ScalarType, kMostOperands> reads;
  ScalarType result;  // of the loop
};

void run_plan(const Plan& plan, const Operation& operation, BlockLoop loop) {
  const View& out = plan.out;
  const auto strides = [&](size_t k) {
    return k < plan.count ? &plan.inputs[k].strides : &out.strides;
  };
  const Loop<kMostOperands + 1> walk(out.sizes, {&out.strides, strides(0), strides(1), strides(2)});
  alignas(64) std::byte blocks[kMostOperands + 1][kBlock * sizeof(int64_t)];
  const auto is_bool = [](ScalarType type) { return type == ScalarType::kBool; };
  // Bytes of bools may be anything, and sums of them are more than one.
  const bool fix_result = is_bool(plan.result) && !operation.to_bool;
  walk.run([&](const auto& offsets, int64_t count, const auto& steps) {
    // What lies in memory as the loop takes it need not be copied, nor be cut into blocks.
    bool direct[kMostOperands + 1];
    bool all_direct = direct[kMostOperands] = out.type == plan.result && steps[0] == 1;
    for (size_t k = 0; k < plan.count; ++k) {
      direct[k] =
          plan.inputs[k].type == plan.reads[k] && steps[k + 1] == 1 && !is_bool(plan.reads[k]);
      all_direct = all_direct && direct[k];
    }
    for (int64_t start = 0; start < count;) {
      int64_t n = all_direct ? count - start : std::min(kBlock, count - start);
      const bool whole = n >= kLoopStep;
      if (whole) n &= ~(kLoopStep - 1);
      const int64_t padded = whole ? n : kLoopStep;
      std::array<const void*, kMostOperands> in{};
      for (size_t k = 0; k < plan.count; ++k) {
        const View& view = plan.inputs[k];
        const std::byte* source = view.at(offsets[k + 1] + start * steps[k + 1]);
        std::byte* block = blocks[k];
        in[k] = direct[k] && whole ? source : block;
        if (in[k] != block) continue;
        const size_t size = element_size(plan.reads[k]);
        if (steps[k + 1] != 0) {
          read_block(view.type, source, steps[k + 1], n, plan.reads[k], block);
          repeat_last(size, block, n, padded);
        } else if (start == 0) {
          // What repeats is the same in every block, of which the first is the largest.
          read_block(view.type, source, 1, 1, plan.reads[k], block);
          gather(size, block, 0, padded, block);
        }
      }
      std::byte* target = out.at(offsets[0] + start * steps[0]);
      std::byte* to = direct[kMostOperands] && whole ? target : blocks[kMostOperands];
      loop(operation.self, in.data(), to, padded);
      if (fix_result) read_block(ScalarType::kBool, to, 1, n, ScalarType::kBool, to);
      if (to != target) write_block(plan.result, to, n, out.type, target, steps[0]);
      start += n;
    }
  });
}

}  // namespace

ElementwiseTypes elementwise_types(std::span<const Operand> operands, ResultRule rule) {
  TypePromotion promotion;
  for (const Operand& operand : operands) {
    if (operand.tensor) {
      promotion.add(*operand.tensor);
    } else {
      promotion.add(operand.number);
    }
  }
  const ScalarType promoted = promotion.result();
  switch (rule) {
    case ResultRule::kFloating:
      return {to_floating(promoted), to_floating(promoted)};
    case ResultRule::kBool:
      return {promoted, ScalarType::kBool};
    default:
      return {promoted, promoted};
  }
}

Status run_operation(KernelContext& context, std::span<const Operand> operands, Tensor* out,
                     const Operation& operation, ElementwiseTypes types) {
  if (!context.ok()) return context.status();
  Plan plan;
  plan.count = operands.size();
  std::array<ScalarView, kMostOperands> scalars;
  for (size_t k = 0; k < plan.count; ++k) scalars[k] = ScalarView(operands[k].number);
  EDGEWISE_RETURN_IF_ERROR(
      prepare(context, operands, scalars, plan.inputs, out, types, operation.rounds_numbers));
  plan.out = view_of(*out);
  const ScalarType read = reading_type(operation, types.common, out->type());
  plan.reads.fill(read);
  if (operation.condition) {
    plan.reads[0] = ScalarType::kByte;
    if (plan.inputs[0].type == ScalarType::kBool) plan.inputs[0].type = ScalarType::kByte;
  }
  plan.result = operation.to_bool ? ScalarType::kBool : read;
  run_plan(plan, operation, operation.loop(read));
  if (operation.failure && *operation.failure) {
    return context.fail(Code::kInvalidArgument, "%s", *operation.failure);
  }
  return context.status();
}

Status run_operation(KernelContext& context, std::span<const Operand> operands, Tensor* out,
                     const Operation& operation, ResultRule rule) {
  if (!context.ok()) return context.status();
  return run_operation(context, operands, out, operation, elementwise_types(operands, rule));
}

Status run_unary(KernelContext& context, const Operation& operation, ResultRule rule) {
  const std::array operands{tensor_operand(context, 0)};
  return run_operation(context, operands, elementwise_output(context, 1), operation, rule);
}

Status run_binary(KernelContext& context, const Operation& operation, ResultRule rule,
                  bool with_scalar) {
  const std::array operands{tensor_operand(context, 0),
                            with_scalar ? scalar_operand(context, 1) : tensor_operand(context, 1)};
  return run_operation(context, operands, elementwise_output(context, 2), operation, rule);
}

}  // namespace HWY_NAMESPACE
}  // namespace edgewise
