#include "elementwise.h"

#include <algorithm>
#include <string>

namespace edgewise {
inline namespace EDGEWISE_TARGET {

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

Status prepare_elementwise(KernelContext& context, std::span<const Operand> operands,
                           std::span<ScalarView* const> scalars, std::span<View> views, Tensor* out,
                           ElementwiseTypes types) {
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
    View view = operands[k].tensor ? view_of(*operands[k].tensor) : scalars[k]->view();
    // Numbers do not widen a type: they wrap to it.
    if (view.sizes.size() == 0 && view.type != types.common && is_integral(types.common)) {
      view = scalars[k]->narrow(view, types.common);
    }
    views[k] = view.expand(sizes);
  }
  return {};
}

}  // namespace EDGEWISE_TARGET
}  // namespace edgewise
