#include "joined_calls.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <optional>
#include <string_view>

#include "method_memory.h"

namespace edgewise {

namespace {

using Kind = InstructionPlan::Kind;
using Args = std::vector<uint32_t>;

// What a search may cost: values looked at, for all calls together.
constexpr size_t kMostWork = size_t{1} << 24;

// Where each value is mentioned: instructions, in order, one entry a mention. Outputs are
// mentioned after the last one, inputs before the first.
class Mentions {
 public:
  explicit Mentions(const MethodPlan& plan) : plan_(plan), places_(plan.values.size()) {
    for (const uint32_t input : plan.inputs) add(input, 0);
    for (size_t i = 0; i < plan.instructions.size(); ++i) {
      const InstructionPlan& instruction = plan.instructions[i];
      for (const uint32_t arg : instruction.args) add(arg, i + 1);
      if (instruction.kind == Kind::kFree) add(instruction.target, i + 1);
    }
    for (const uint32_t output : plan.outputs) add(output, plan.instructions.size() + 1);
  }

  // How often, if nowhere but in the instructions `first` to `last`; else 0.
  size_t only_within(uint32_t value, size_t first, size_t last) const {
    const auto& places = places_[value];
    const bool within = !places.empty() && places.front() > first && places.back() <= last + 1;
    return within ? places.size() : 0;
  }
  // The first instruction after `last`; the number of instructions for an output.
  std::optional<size_t> next(uint32_t value, size_t last) const {
    const auto& places = places_[value];
    const auto found = std::ranges::upper_bound(places, last + 1);
    if (found == places.end()) return std::nullopt;
    return *found - 1;
  }

 private:
  void add(uint32_t value, size_t place) {
    places_[value].push_back(place);
    if (const auto* list = std::get_if<TensorListPlan>(&plan_.values[value])) {
      for (const uint32_t item : list->items) {
        if (item != kNone) places_[item].push_back(place);
      }
    } else if (const auto* ints = std::get_if<IntListPlan>(&plan_.values[value])) {
      for (const uint32_t item : ints->items) places_[item].push_back(place);
    }
  }

  const MethodPlan& plan_;
  std::vector<std::vector<size_t>> places_;
};

// A call that was found: its results that are left out, and whether the kernel takes element by
// element, so that its output may lie where an operand does.
struct Match {
  const char* kernel;
  size_t count;  // instructions
  Args args;
  Args between;
  bool elementwise = false;
};

class Finder {
 public:
  explicit Finder(const MethodPlan& plan)
      : plan_(plan), mentions_(plan), written_(plan.values.size()) {
    for (const uint32_t input : plan.inputs) written_[input] = true;
    for (const InstructionPlan& instruction : plan.instructions) {
      for (const uint32_t arg : instruction.args) {
        const bool returned = arg == instruction.args.back();
        if (returned || instruction.kind == Kind::kDelegate) written_[arg] = true;
      }
    }
  }

  std::vector<JoinedCall> run() {
    std::vector<JoinedCall> found;
    for (size_t at = 0; at < plan_.instructions.size();) {
      const std::optional<JoinedCall> call = find(at);
      if (call) found.push_back(*call);
      at = call ? call->last + 1 : at + 1;
    }
    return found;
  }

 private:
  std::optional<JoinedCall> find(size_t at) {
    if (plan_.instructions[at].kind != Kind::kKernel) return std::nullopt;
    using Pattern = std::optional<Match> (Finder::*)(size_t) const;
    for (const Pattern pattern :
         {&Finder::linear, &Finder::dot, &Finder::hardswish, &Finder::hardsigmoid, &Finder::norm}) {
      const std::optional<Match> match = (this->*pattern)(at);
      if (!match) continue;
      if (std::optional<JoinedCall> call = join(at, *match)) return call;
    }
    return std::nullopt;
  }

  // The arguments of instruction `at` if it calls the operator, with its one output at the end.
  const Args* call(size_t at, std::string_view name, size_t count) const {
    if (at >= plan_.instructions.size()) return nullptr;
    const InstructionPlan& instruction = plan_.instructions[at];
    if (instruction.kind != Kind::kKernel || instruction.args.size() != count + 1) return nullptr;
    const Args& args = instruction.args;
    if (args[count] != args[count - 1] || plan_.operators[instruction.target] != name)
      return nullptr;
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

  // x W^T, or b + x W^T.
  std::optional<Match> linear(size_t at) const {
    const Args* turn = call(at, "aten::permute_copy.out", 3);
    if (turn == nullptr || !is_list((*turn)[1], {1, 0})) return std::nullopt;
    const uint32_t weight = (*turn)[0], turned = (*turn)[2];
    if (const Args* mm = call(at + 1, "aten::mm.out", 3)) {
      const uint32_t input = (*mm)[0], out = (*mm)[2];
      if ((*mm)[1] != turned || !one_type({input, weight, turned, out}, false)) return std::nullopt;
      return Match{"aten::linear.out", 2, {input, weight, kNone, out}, {turned}};
    }
    const Args* mm = call(at + 1, "aten::addmm.out", 6);
    if (mm == nullptr) return std::nullopt;
    const uint32_t bias = (*mm)[0], input = (*mm)[1], out = (*mm)[5];
    if ((*mm)[2] != turned || !one_type({input, weight, turned, out, bias}, false) ||
        !is(mm->at(3), 1) || !is(mm->at(4), 1) || plan_.tensor(weight)->sizes.size() != 2 ||
        plan_.tensor(weight)->dynamism != Dynamism::kStatic ||
        !is_vector(bias, plan_.tensor(weight)->sizes[0])) {
      return std::nullopt;
    }
    return Match{"aten::linear.out", 2, {input, weight, bias, out}, {turned}};
  }

  // A sum of products of two vectors.
  std::optional<Match> dot(size_t at) const {
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
    return Match{"aten::dot.out", 2, {a, b, out}, {products}};
  }

  // clamp(x + 3, 0, 6) / 6.
  std::optional<Match> hardsigmoid(size_t at) const {
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
    return Match{"aten::hardsigmoid.out", 3, {x, out}, {shifted, within}, true};
  }

  // That times x.
  std::optional<Match> hardswish(size_t at) const {
    std::optional<Match> match = hardsigmoid(at);
    const Args* mul = match ? call(at + 3, "aten::mul.out", 3) : nullptr;
    if (mul == nullptr) return std::nullopt;
    const uint32_t x = match->args[0], gate = match->args[1], out = (*mul)[2];
    const bool times_x =
        ((*mul)[0] == x && (*mul)[1] == gate) || ((*mul)[1] == x && (*mul)[0] == gate);
    if (x == gate || !times_x || !one_type({x, out}, true)) return std::nullopt;
    match->between.push_back(gate);
    return Match{"aten::hardswish.out", 4, {x, out}, std::move(match->between), true};
  }

  // The root of a sum of squares.
  std::optional<Match> norm(size_t at) const {
    const Args* abs = call(at, "aten::abs.out", 2);
    const size_t start = abs != nullptr ? at + 1 : at;
    const Args* square = call(start, "aten::pow.Tensor_Scalar_out", 3);
    if (square == nullptr || !is((*square)[1], 2)) return std::nullopt;
    const Args* sum = call(start + 1, "aten::sum.IntList_out", 5);
    const Args* root = call(start + 2, "aten::pow.Tensor_Scalar_out", 3);
    if (sum == nullptr || root == nullptr || !is((*root)[1], 0.5) || !is_none((*sum)[3]) ||
        (abs != nullptr && (*abs)[1] != (*square)[0]) || (*square)[2] != (*sum)[0] ||
        (*sum)[4] != (*root)[0]) {
      return std::nullopt;
    }
    const uint32_t x = abs != nullptr ? (*abs)[0] : (*square)[0], out = (*root)[2];
    if (!one_type({x, (*square)[0], (*square)[2], (*sum)[4], out}, true)) return std::nullopt;
    Args between;
    if (abs != nullptr) between.push_back((*abs)[1]);
    between.push_back((*square)[2]);
    between.push_back((*sum)[4]);
    return Match{"aten::linalg_vector_norm.out",
                 start + 3 - at,
                 {x, (*square)[1], (*sum)[1], (*sum)[2], (*sum)[3], out},
                 std::move(between)};
  }

  std::optional<JoinedCall> join(size_t at, const Match& match) {
    const size_t last = at + match.count - 1;
    const uint32_t out = match.args.back();
    for (const uint32_t value : match.between) {
      if (!may_be_left_out(value, at, last, out)) return std::nullopt;
    }
    const auto operands = std::span(match.args).first(match.args.size() - 1);
    if (!match.elementwise && std::ranges::count(operands, out) != 0) return std::nullopt;
    JoinedCall call{static_cast<uint32_t>(at), static_cast<uint32_t>(last), match.kernel,
                    match.args, kNone};
    if (is_in_the_way(match, out)) {
      // The first result between has room, and its place is nobody else's.
      const uint32_t room = match.between[0];
      if (!has_room(room, match, out)) return std::nullopt;
      call.computed_in = room;
    }
    return call;
  }

  // Written by one of the instructions, read by the next, and by nobody else.
  bool may_be_left_out(uint32_t value, size_t first, size_t last, uint32_t out) {
    const TensorPlan& tensor = *plan_.tensor(value);
    if (mentions_.only_within(value, first, last) != 3 || tensor.has_initial() ||
        tensor.storage == TensorPlan::Storage::kConstant) {
      return false;
    }
    if (tensor.storage != TensorPlan::Storage::kPlanned) return true;
    if (plan_.shared_arenas[tensor.arena]) return false;
    work_ += plan_.values.size();
    if (work_ > kMostWork) return false;
    for (uint32_t other = 0; other < plan_.values.size(); ++other) {
      if (other == value || other == out || !shares_memory(plan_, value, other)) continue;
      if (!is_written_next(other, tensor, last)) return false;
    }
    return true;
  }

  // Whether what shares memory with a result that is left out is not read after it.
  bool is_written_next(uint32_t other, const TensorPlan& left_out, size_t last) const {
    const TensorPlan& tensor = *plan_.tensor(other);
    if (tensor.has_initial()) return false;
    const std::optional<size_t> next = mentions_.next(other, last);
    if (!next) return true;
    if (*next == plan_.instructions.size()) return false;
    const InstructionPlan& instruction = plan_.instructions[*next];
    if (instruction.kind == Kind::kDelegate) {
      // Only a view of all of it could be read.
      return tensor.offset != left_out.offset || tensor.nbytes != left_out.nbytes;
    }
    if (instruction.kind != Kind::kKernel) return false;
    const std::string& name = plan_.operators[instruction.target];
    return instruction.args.back() == other && std::ranges::count(instruction.args, other) == 2 &&
           mentions_once_more(*next, other) && name.ends_with("out") &&
           !name.starts_with("executorch_prim::");
  }
  // Not inside of a list.
  bool mentions_once_more(size_t at, uint32_t value) const {
    return std::ranges::none_of(plan_.instructions[at].args, [&](uint32_t arg) {
      const auto* list = std::get_if<TensorListPlan>(&plan_.values[arg]);
      return list != nullptr && std::ranges::count(list->items, value) != 0;
    });
  }

  // Whether the output lies where operands do that are still read when it is written.
  bool is_in_the_way(const Match& match, uint32_t out) const {
    return std::ranges::any_of(std::span(match.args).first(match.args.size() - 1), [&](uint32_t a) {
      if (a == kNone || plan_.tensor(a) == nullptr) return false;
      const bool shared = shares_memory(plan_, a, out);
      return shared && !(match.elementwise && plan_.tensor(a)->offset == plan_.tensor(out)->offset);
    });
  }

  bool has_room(uint32_t room, const Match& match, uint32_t out) const {
    const TensorPlan &tensor = *plan_.tensor(room), &target = *plan_.tensor(out);
    if (tensor.storage != TensorPlan::Storage::kPlanned ||
        target.storage != TensorPlan::Storage::kPlanned || tensor.nbytes < target.nbytes) {
      return false;
    }
    return std::ranges::none_of(
        match.args, [&](uint32_t arg) { return arg != kNone && shares_memory(plan_, room, arg); });
  }

  const MethodPlan& plan_;
  const Mentions mentions_;
  std::vector<bool> written_;  // inputs, and what instructions return
  size_t work_ = 0;
};

}  // namespace

std::vector<JoinedCall> find_joined_calls(const MethodPlan& plan) {
  constexpr std::string_view kLast[] = {"aten::mm.out", "aten::addmm.out", "aten::sum.IntList_out",
                                        "aten::clamp.out"};
  const bool candidates = std::ranges::any_of(plan.operators, [&](const std::string& name) {
    return std::ranges::find(kLast, name) != std::end(kLast);
  });
  // Instructions run once, in order.
  const bool straight = std::ranges::none_of(plan.instructions, [](const InstructionPlan& i) {
    return i.kind == Kind::kJumpFalse || i.kind == Kind::kMove;
  });
  if (!candidates || !straight) return {};
  return Finder(plan).run();
}

}  // namespace edgewise
