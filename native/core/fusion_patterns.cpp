// The patterns of instruction fusion: how lowering to core operators decomposes linear, dot,
// hardsigmoid, hardswish and vector norms, and how it updates the state of linear attention.
#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <iterator>
#include <string_view>

#include "instruction_fusion.h"

namespace edgewise {

namespace {

using Kind = InstructionPlan::Kind;
using Args = std::vector<uint32_t>;

class Patterns {
 public:
  explicit Patterns(const MethodPlan& plan) : plan_(plan), written_(plan.values.size()) {
    for (const uint32_t input : plan.inputs) written_[input] = true;
    for (const InstructionPlan& instruction : plan.instructions) {
      for (const uint32_t arg : instruction.args) {
        const bool returned = arg == instruction.args.back();
        if (returned || instruction.kind == Kind::kDelegate) written_[arg] = true;
      }
    }
  }

  // x W^T, or b + x W^T.
  std::optional<Match> linear(uint32_t at) const {
    const Args* transpose = call(at, "aten::permute_copy.out", 3);
    if (transpose == nullptr || !is_list((*transpose)[1], {1, 0})) return std::nullopt;
    const uint32_t weight = (*transpose)[0], transposed = (*transpose)[2];
    if (const Args* mm = call(at + 1, "aten::mm.out", 3)) {
      const uint32_t input = (*mm)[0], out = (*mm)[2];
      if ((*mm)[1] != transposed || !one_type({input, weight, transposed, out}, false))
        return std::nullopt;
      return Match{"aten::linear.out", at, 2, {input, weight, kNone, out}, {transposed}};
    }
    const Args* mm = call(at + 1, "aten::addmm.out", 6);
    if (mm == nullptr) return std::nullopt;
    const uint32_t bias = (*mm)[0], input = (*mm)[1], out = (*mm)[5];
    if ((*mm)[2] != transposed || !one_type({input, weight, transposed, out, bias}, false) ||
        !is((*mm)[3], 1) || !is((*mm)[4], 1) || plan_.tensor(weight)->sizes.size() != 2 ||
        plan_.tensor(weight)->dynamism != Dynamism::kStatic ||
        !is_vector(bias, plan_.tensor(weight)->sizes[0])) {
      return std::nullopt;
    }
    return Match{"aten::linear.out", at, 2, {input, weight, bias, out}, {transposed}};
  }

  // sum(a * b) of two vectors.
  std::optional<Match> dot(uint32_t at) const {
    const Args* mul = call(at, "aten::mul.out", 3);
    if (mul == nullptr) return std::nullopt;
    const Args* sum = call(at + 1, "aten::sum.IntList_out", 5);
    if (sum == nullptr || (*sum)[0] != (*mul)[2]) return std::nullopt;
    const uint32_t a = (*mul)[0], b = (*mul)[1], products = (*mul)[2], out = (*sum)[4];
    const bool* keep = std::get_if<bool>(&plan_.values[(*sum)[2]]);
    const bool all = is_none((*sum)[1]) || is_list((*sum)[1], {}) || is_list((*sum)[1], {0});
    // Products of integers wrap before they are summed.
    if (!all || keep == nullptr || *keep || written_[(*sum)[2]] || !is_none((*sum)[3]) ||
        !one_type({a, b, products, out}, true) || plan_.tensor(a)->sizes.size() != 1 ||
        !is_vector(a, plan_.tensor(a)->sizes[0]) || !is_vector(b, plan_.tensor(a)->sizes[0])) {
      return std::nullopt;
    }
    return Match{"aten::dot.out", at, 2, {a, b, out}, {products}};
  }

  // clamp(x + 3, 0, 6) / 6.
  std::optional<Match> hardsigmoid(uint32_t at) const {
    const Args* add = call(at, "aten::add.Scalar_out", 4);
    if (add == nullptr || !is((*add)[1], 3) || !is((*add)[2], 1)) return std::nullopt;
    const Args* clamp = call(at + 1, "aten::clamp.out", 4);
    if (clamp == nullptr || (*clamp)[0] != (*add)[3] || !is((*clamp)[1], 0) || !is((*clamp)[2], 6))
      return std::nullopt;
    const Args* scale = call(at + 2, "aten::mul.Scalar_out", 3);
    if (scale == nullptr || (*scale)[0] != (*clamp)[3]) return std::nullopt;
    const uint32_t x = (*add)[0], shifted = (*add)[3], within = (*clamp)[3], out = (*scale)[2];
    const std::optional<double> factor = number((*scale)[1]);
    if (!factor || std::abs(*factor * 6 - 1) > 1e-12 || !one_type({x, shifted, within, out}, true))
      return std::nullopt;
    return Match{"aten::hardsigmoid.out", at, 3, {x, out}, {shifted, within}, true};
  }

  // x * clamp(x + 3, 0, 6) / 6: a hardsigmoid, multiplied by its input.
  std::optional<Match> hardswish(uint32_t at) const {
    std::optional<Match> match = hardsigmoid(at);
    const Args* mul = match ? call(at + 3, "aten::mul.out", 3) : nullptr;
    if (mul == nullptr) return std::nullopt;
    const uint32_t x = match->args[0], gate = match->args[1], out = (*mul)[2];
    const bool times_x =
        ((*mul)[0] == x && (*mul)[1] == gate) || ((*mul)[1] == x && (*mul)[0] == gate);
    if (x == gate || !times_x || !one_type({x, out}, true)) return std::nullopt;
    match->intermediates.push_back(gate);
    return Match{"aten::hardswish.out", at, 4, {x, out}, std::move(match->intermediates), true};
  }

  // sum(|x|^p)^(1/p), for p = 2 also without the abs.
  std::optional<Match> norm(uint32_t at) const {
    const Args* abs = call(at, "aten::abs.out", 2);
    const uint32_t start = abs != nullptr ? at + 1 : at;
    const Args* power = call(start, "aten::pow.Tensor_Scalar_out", 3);
    const Args* sum = call(start + 1, "aten::sum.IntList_out", 5);
    const Args* root = call(start + 2, "aten::pow.Tensor_Scalar_out", 3);
    if (power == nullptr || sum == nullptr || root == nullptr || !is_none((*sum)[3]) ||
        (abs != nullptr && (*abs)[1] != (*power)[0]) || (*power)[2] != (*sum)[0] ||
        (*sum)[4] != (*root)[0]) {
      return std::nullopt;
    }
    if (!one_type({(*power)[0]}, true)) return std::nullopt;
    const std::optional<double> order = number((*power)[1]), inverse = number((*root)[1]);
    if (!order || !inverse || std::abs(*order * *inverse - 1) > 1e-12) return std::nullopt;
    // Other powers are faster unfused, but their intermediates may overflow float16.
    const ScalarType type = plan_.tensor((*power)[0])->type;
    const bool other = abs != nullptr && *order > 0 && type == ScalarType::kHalf;
    if (*order != 2 && !other) return std::nullopt;
    const uint32_t x = abs != nullptr ? (*abs)[0] : (*power)[0], out = (*root)[2];
    if (!one_type({x, (*power)[0], (*power)[2], (*sum)[4], out}, true)) return std::nullopt;
    Args intermediates;
    if (abs != nullptr) intermediates.push_back((*abs)[1]);
    intermediates.push_back((*power)[2]);
    intermediates.push_back((*sum)[4]);
    return Match{"aten::linalg_vector_norm.out",
                 at,
                 start + 3 - at,
                 {x, (*power)[1], (*sum)[1], (*sum)[2], (*sum)[3], out},
                 std::move(intermediates)};
  }

  // The new state, copied over the one that it was computed from: computed there at once.
  std::optional<Match> delta_rule(uint32_t at) const {
    if (at + 1 >= plan_.instructions.size()) return std::nullopt;
    const InstructionPlan &rule = plan_.instructions[at], &copy = plan_.instructions[at + 1];
    if (!is_call(rule, "llama::gated_delta_rule.out", 9) || !is_call(copy, "aten::copy_", 4)) {
      return std::nullopt;
    }
    const uint32_t state = rule.args[5], result = rule.args[6], updated = rule.args[7];
    if (copy.args[0] != state || copy.args[1] != updated || copy.args[3] != state ||
        !one_type({rule.args[0], state, result, updated}, true) ||
        plan_.tensor(state)->dynamism != Dynamism::kStatic ||
        plan_.tensor(state)->sizes != plan_.tensor(updated)->sizes) {
      return std::nullopt;
    }
    Args args(rule.args.begin(), rule.args.begin() + 7);
    args.push_back(state);
    return Match{"llama::gated_delta_rule.out", at, 2, std::move(args), {updated}, true};
  }

 private:
  bool is_call(const InstructionPlan& instruction, std::string_view name, size_t count) const {
    return instruction.kind == Kind::kKernel && instruction.args.size() == count &&
           plan_.operators[instruction.target] == name;
  }
  // The arguments of instruction `at` if it calls the operator, with its one output at the end.
  const Args* call(uint32_t at, std::string_view name, size_t count) const {
    if (at >= plan_.instructions.size()) return nullptr;
    const InstructionPlan& instruction = plan_.instructions[at];
    const Args& args = instruction.args;
    if (!is_call(instruction, name, count + 1) || args[count] != args[count - 1]) return nullptr;
    return &args;
  }

  // A number that no instruction computes.
  std::optional<double> number(uint32_t value) const {
    if (written_[value]) return std::nullopt;
    if (const auto* i = std::get_if<int64_t>(&plan_.values[value])) return static_cast<double>(*i);
    if (const auto* d = std::get_if<double>(&plan_.values[value])) return *d;
    return std::nullopt;
  }
  bool is(uint32_t value, double wanted) const { return number(value) == wanted; }
  bool is_none(uint32_t value) const {
    return std::holds_alternative<std::monostate>(plan_.values[value]) && !written_[value];
  }
  bool is_list(uint32_t value, std::initializer_list<double> wanted) const {
    const auto* list = std::get_if<IntListPlan>(&plan_.values[value]);
    return list != nullptr && std::ranges::equal(list->items, wanted, [&](uint32_t item, double w) {
             return is(item, w);
           });
  }
  // Tensors of one type, which may have to be floating.
  bool one_type(std::initializer_list<uint32_t> values, bool floating) const {
    const TensorPlan* first = plan_.tensor(*values.begin());
    if (first == nullptr) return false;
    const ScalarType type = first->type;
    if (floating && type != ScalarType::kFloat && type != ScalarType::kDouble &&
        type != ScalarType::kHalf && type != ScalarType::kBFloat16) {
      return false;
    }
    return std::ranges::all_of(values, [&](uint32_t value) {
      const TensorPlan* tensor = plan_.tensor(value);
      return tensor != nullptr && tensor->type == type;
    });
  }
  bool is_vector(uint32_t value, int64_t size) const {
    const TensorPlan* tensor = plan_.tensor(value);
    return tensor != nullptr && tensor->dynamism == Dynamism::kStatic &&
           tensor->sizes.size() == 1 && tensor->sizes[0] == size;
  }

  const MethodPlan& plan_;
  std::vector<bool> written_;  // inputs, and what instructions return
};

}  // namespace

std::vector<Match> find_matches(const MethodPlan& plan) {
  constexpr std::string_view kNeeded[] = {"aten::mm.out", "aten::addmm.out",
                                          "aten::sum.IntList_out", "aten::clamp.out",
                                          "llama::gated_delta_rule.out"};
  const bool possible = std::ranges::any_of(plan.operators, [&](const std::string& name) {
    return std::ranges::find(kNeeded, name) != std::end(kNeeded);
  });
  std::vector<Match> found;
  if (!possible) return found;
  const Patterns patterns(plan);
  // Longer ones first.
  using Pattern = std::optional<Match> (Patterns::*)(uint32_t) const;
  constexpr Pattern kAll[] = {&Patterns::linear,      &Patterns::dot,  &Patterns::hardswish,
                              &Patterns::hardsigmoid, &Patterns::norm, &Patterns::delta_rule};
  for (uint32_t at = 0; at < plan.instructions.size(); ++at) {
    if (plan.instructions[at].kind != Kind::kKernel) continue;
    for (const Pattern pattern : kAll) {
      if (std::optional<Match> match = (patterns.*pattern)(at)) found.push_back(std::move(*match));
    }
  }
  return found;
}

}  // namespace edgewise
