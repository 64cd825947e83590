#include "instruction_fusion.h"

#include <algorithm>
#include <optional>
#include <span>

#include "def_use.h"
#include "method_memory.h"

namespace edgewise {

namespace {

using Kind = InstructionPlan::Kind;

// What a search may cost: values looked at, for all calls together.
constexpr size_t kMostWork = size_t{1} << 24;

// The uses and definitions of each value: positions of instructions, in order, one entry for each
// operand. A method's inputs are at position 0, instruction i at i + 1, outputs after the last.
class UseLists {
 public:
  explicit UseLists(const MethodPlan& plan) : plan_(plan), positions_(plan.values.size()) {
    for (const uint32_t input : plan.inputs) add(input, 0);
    for (size_t i = 0; i < plan.instructions.size(); ++i) {
      const InstructionPlan& instruction = plan.instructions[i];
      for (const uint32_t arg : instruction.args) add(arg, i + 1);
      if (instruction.kind == Kind::kFree) add(instruction.target, i + 1);
    }
    for (const uint32_t output : plan.outputs) add(output, plan.instructions.size() + 1);
  }

  // The number of uses, if all are in the instructions `first` to `last`; else 0.
  size_t only_within(uint32_t value, size_t first, size_t last) const {
    const auto& positions = positions_[value];
    const bool within =
        !positions.empty() && positions.front() > first && positions.back() <= last + 1;
    return within ? positions.size() : 0;
  }
  // The first instruction from `begin` on that uses it; the number of instructions for an output.
  std::optional<size_t> next(uint32_t value, size_t begin) const {
    const auto& positions = positions_[value];
    const auto found = std::ranges::lower_bound(positions, begin + 1);
    if (found == positions.end()) return std::nullopt;
    return *found - 1;
  }
  bool is_input(uint32_t value) const {
    return !positions_[value].empty() && positions_[value][0] == 0;
  }

 private:
  void add(uint32_t value, size_t position) {
    positions_[value].push_back(position);
    if (const auto* list = std::get_if<TensorListPlan>(&plan_.values[value])) {
      for (const uint32_t item : list->items) {
        if (item != kNone) positions_[item].push_back(position);
      }
    } else if (const auto* ints = std::get_if<IntListPlan>(&plan_.values[value])) {
      for (const uint32_t item : ints->items) positions_[item].push_back(position);
    }
  }

  const MethodPlan& plan_;
  std::vector<std::vector<size_t>> positions_;
};

class Fuser {
 public:
  explicit Fuser(const MethodPlan& plan) : plan_(plan), uses_(plan) {}

  std::optional<FusedCall> fuse(const Match& match) {
    const size_t last = match.first + match.count - 1;
    const uint32_t out = match.args.back();
    for (const uint32_t value : match.intermediates) {
      if (!can_be_left_out(value, match.first, last, out)) return std::nullopt;
    }
    const auto operands = std::span(match.args).first(match.args.size() - 1);
    if (!match.elementwise && std::ranges::count(operands, out) != 0) return std::nullopt;
    FusedCall call{match.first, static_cast<uint32_t>(last), match.kernel, match.args, kNone};
    if (is_in_the_way(match, out)) {
      // The first intermediate has room, and shares its memory with no operand.
      const uint32_t room = match.intermediates[0];
      if (!has_room(room, match, out)) return std::nullopt;
      call.computed_in = room;
    }
    return call;
  }

 private:
  // Written by one of the instructions, read by the next, and by no other.
  bool can_be_left_out(uint32_t value, size_t first, size_t last, uint32_t out) {
    const TensorPlan& tensor = *plan_.tensor(value);
    if (uses_.only_within(value, first, last) != 3 || tensor.has_initial() ||
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

  // Whether no instruction expects a left-out result in the memory of `other`, which shares it:
  // neither later in this run nor, if that is state, in the next.
  bool is_written_first(uint32_t other, const TensorPlan& left_out, size_t last) const {
    if (plan_.tensor(other)->has_initial()) return false;
    const std::optional<size_t> next = uses_.next(other, last + 1);
    if (next && may_read(*next, other, left_out)) return false;
    const std::optional<size_t> first = uses_.next(other, 0);
    return uses_.is_input(other) || !first || !may_read(*first, other, left_out);
  }

  // Whether an instruction that uses `value` may take it for a view of the left-out result.
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
  const UseLists uses_;
  size_t work_ = 0;
};

}  // namespace

std::vector<FusedCall> fuse_instructions(const MethodPlan& plan) {
  // Instructions run once, in order.
  const bool straight = std::ranges::none_of(plan.instructions, [](const InstructionPlan& i) {
    return i.kind == Kind::kJumpFalse || i.kind == Kind::kMove;
  });
  const std::vector<Match> matches = straight ? find_matches(plan) : std::vector<Match>();
  if (matches.empty()) return {};
  Fuser fuser(plan);
  std::vector<FusedCall> found;
  for (const Match& match : matches) {
    if (!found.empty() && match.first <= found.back().last) continue;
    if (std::optional<FusedCall> call = fuser.fuse(match)) found.push_back(*std::move(call));
  }
  return found;
}

}  // namespace edgewise
