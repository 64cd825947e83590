#include "joined_calls.h"

#include <algorithm>
#include <optional>
#include <span>

#include "method_memory.h"
#include "plan_mentions.h"

namespace edgewise {

namespace {

using Kind = InstructionPlan::Kind;

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
  // The first instruction from `begin` on; the number of instructions for an output.
  std::optional<size_t> next(uint32_t value, size_t begin) const {
    const auto& places = places_[value];
    const auto found = std::ranges::lower_bound(places, begin + 1);
    if (found == places.end()) return std::nullopt;
    return *found - 1;
  }
  bool is_input(uint32_t value) const { return !places_[value].empty() && places_[value][0] == 0; }

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

class Finder {
 public:
  explicit Finder(const MethodPlan& plan) : plan_(plan), mentions_(plan) {}

  std::optional<JoinedCall> join(const Match& match) {
    const size_t last = match.first + match.count - 1;
    const uint32_t out = match.args.back();
    for (const uint32_t value : match.between) {
      if (!may_be_left_out(value, match.first, last, out)) return std::nullopt;
    }
    const auto operands = std::span(match.args).first(match.args.size() - 1);
    if (!match.elementwise && std::ranges::count(operands, out) != 0) return std::nullopt;
    JoinedCall call{match.first, static_cast<uint32_t>(last), match.kernel, match.args, kNone};
    if (is_in_the_way(match, out)) {
      // The first result between has room, and its place is nobody else's.
      const uint32_t room = match.between[0];
      if (!has_room(room, match, out)) return std::nullopt;
      call.computed_in = room;
    }
    return call;
  }

 private:
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
      if (!is_written_first(other, tensor, last)) return false;
    }
    return true;
  }

  // Whether nobody finds what was left out in the memory of `other`, which it shares: not after
  // it, and, if that is state, not in the next run.
  bool is_written_first(uint32_t other, const TensorPlan& left_out, size_t last) const {
    if (plan_.tensor(other)->has_initial()) return false;
    const std::optional<size_t> next = mentions_.next(other, last + 1);
    if (next && may_read(*next, other, left_out)) return false;
    const std::optional<size_t> first = mentions_.next(other, 0);
    return mentions_.is_input(other) || !first || !may_read(*first, other, left_out);
  }

  // Whether an instruction that mentions `value` may take it for a view of what was left out.
  bool may_read(size_t at, uint32_t value, const TensorPlan& left_out) const {
    if (at == plan_.instructions.size()) return true;
    const InstructionPlan& instruction = plan_.instructions[at];
    if (instruction.kind == Kind::kDelegate) {
      const TensorPlan& tensor = *plan_.tensor(value);
      return tensor.offset == left_out.offset && tensor.nbytes == left_out.nbytes;
    }
    if (instruction.kind != Kind::kKernel) return true;
    return !writes_only(plan_, instruction, value, instruction.args.size() - 1);
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
  size_t work_ = 0;
};

}  // namespace

std::vector<JoinedCall> find_joined_calls(const MethodPlan& plan) {
  // Instructions run once, in order.
  const bool straight = std::ranges::none_of(plan.instructions, [](const InstructionPlan& i) {
    return i.kind == Kind::kJumpFalse || i.kind == Kind::kMove;
  });
  const std::vector<Match> matches = straight ? find_matches(plan) : std::vector<Match>();
  if (matches.empty()) return {};
  Finder finder(plan);
  std::vector<JoinedCall> found;
  for (const Match& match : matches) {
    if (!found.empty() && match.first <= found.back().last) continue;
    if (std::optional<JoinedCall> call = finder.join(match)) found.push_back(*std::move(call));
  }
  return found;
}

}  // namespace edgewise
