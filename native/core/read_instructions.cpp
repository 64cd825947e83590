// Operators, delegates' calls and the instructions of a method.
#include "method_plan.h"

namespace edgewise {

namespace {

using Kind = InstructionPlan::Kind;

Status check_index(int64_t index, size_t count, const char* what) {
  if (index >= 0 && static_cast<uint64_t>(index) < count) return Status::ok_status();
  return error(Code::kInvalidProgram, "%s %lld does not exist; the method has %zu", what,
               static_cast<long long>(index), count);
}

Status read_operators(const fb::ExecutionPlan& source, ItemBudget& budget, MethodPlan& plan) {
  const auto* operators = source.operators();
  if (operators == nullptr) return Status::ok_status();
  plan.operators.reserve(operators->size());
  for (const fb::Operator* entry : *operators) {
    if (entry->name() == nullptr) {
      return error(Code::kInvalidProgram, "operator %zu has no name", plan.operators.size());
    }
    std::string name = entry->name()->str();
    if (entry->overload() != nullptr && entry->overload()->size() != 0) {
      name.append(".").append(entry->overload()->string_view());
    }
    EDGEWISE_RETURN_IF_ERROR(budget.take(name.size()));
    plan.operators.push_back(std::move(name));
  }
  return Status::ok_status();
}

// `first` and `count`: the chain's range in the flat list of instructions.
Status read_instruction(const fb::Instruction& source, size_t first, size_t count,
                        ItemBudget& budget, const MethodPlan& plan, InstructionPlan& result) {
  const size_t values = plan.values.size();
  if (source.instr_args() == nullptr) return error(Code::kInvalidProgram, "it has no content");
  switch (source.instr_args_type()) {
    case fb::InstructionArguments::KernelCall: {
      const fb::KernelCall* call = source.instr_args_as_KernelCall();
      result.kind = Kind::kKernel;
      EDGEWISE_RETURN_IF_ERROR(check_index(call->op_index(), plan.operators.size(), "operator"));
      result.target = static_cast<uint32_t>(call->op_index());
      return read_indices(call->args(), values, "arguments", budget, &result.args);
    }
    case fb::InstructionArguments::DelegateCall: {
      const fb::DelegateCall* call = source.instr_args_as_DelegateCall();
      result.kind = Kind::kDelegate;
      EDGEWISE_RETURN_IF_ERROR(
          check_index(call->delegate_index(), plan.delegates.size(), "delegate"));
      result.target = static_cast<uint32_t>(call->delegate_index());
      return read_indices(call->args(), values, "arguments", budget, &result.args);
    }
    case fb::InstructionArguments::MoveCall: {
      const fb::MoveCall* call = source.instr_args_as_MoveCall();
      result.kind = Kind::kMove;
      EDGEWISE_RETURN_IF_ERROR(check_index(call->move_from(), values, "value"));
      EDGEWISE_RETURN_IF_ERROR(check_index(call->move_to(), values, "value"));
      result.target = static_cast<uint32_t>(call->move_from());
      result.destination = static_cast<uint32_t>(call->move_to());
      return Status::ok_status();
    }
    case fb::InstructionArguments::JumpFalseCall: {
      const fb::JumpFalseCall* call = source.instr_args_as_JumpFalseCall();
      result.kind = Kind::kJumpFalse;
      EDGEWISE_RETURN_IF_ERROR(check_index(call->cond_value_index(), values, "value"));
      const int64_t destination = call->destination_instruction();
      if (destination < 0 || static_cast<uint64_t>(destination) > count) {
        return error(Code::kInvalidProgram, "the jump to instruction %lld leaves the chain of %zu",
                     static_cast<long long>(destination), count);
      }
      result.target = static_cast<uint32_t>(call->cond_value_index());
      result.destination = static_cast<uint32_t>(first + static_cast<size_t>(destination));
      return Status::ok_status();
    }
    case fb::InstructionArguments::FreeCall: {
      const fb::FreeCall* call = source.instr_args_as_FreeCall();
      result.kind = Kind::kFree;
      EDGEWISE_RETURN_IF_ERROR(check_index(call->value_index(), values, "value"));
      result.target = static_cast<uint32_t>(call->value_index());
      return Status::ok_status();
    }
    default:
      return error(Code::kInvalidProgram, "kind %d is not known",
                   static_cast<int>(source.instr_args_type()));
  }
}

}  // namespace

Status read_instructions(const fb::ExecutionPlan& source, ItemBudget& budget, MethodPlan& plan) {
  EDGEWISE_RETURN_IF_ERROR(read_operators(source, budget, plan));
  const auto* chains = source.chains();
  if (chains == nullptr) return Status::ok_status();
  for (const fb::Chain* chain : *chains) {
    const auto* instructions = chain->instructions();
    if (instructions == nullptr) continue;
    EDGEWISE_RETURN_IF_ERROR(budget.take(instructions->size()));
    const size_t first = plan.instructions.size();
    for (const fb::Instruction* instruction : *instructions) {
      InstructionPlan result;
      const Status status =
          read_instruction(*instruction, first, instructions->size(), budget, plan, result);
      if (!status.ok()) {
        return error(status.code(), "instruction %zu: %s", plan.instructions.size(),
                     status.message().c_str());
      }
      plan.instructions.push_back(std::move(result));
    }
  }
  return Status::ok_status();
}

}  // namespace edgewise
