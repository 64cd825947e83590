#include "input_sizes.h"
#include "method_plan.h"

namespace edgewise {

namespace {

Status read_delegates(const PteFile& file, const fb::ExecutionPlan& source, ItemBudget& budget,
                      MethodPlan& plan) {
  const auto* delegates = source.delegates();
  if (delegates == nullptr) return Status::ok_status();
  for (const fb::BackendDelegate* entry : *delegates) {
    const size_t index = plan.delegates.size();
    if (entry->id() == nullptr || entry->processed() == nullptr) {
      return error(Code::kInvalidProgram, "delegate %zu has no backend or no payload", index);
    }
    DelegatePlan delegate;
    delegate.backend = entry->id()->str();
    EDGEWISE_RETURN_IF_ERROR(budget.take(delegate.backend.size()));
    Result<std::span<const std::byte>> payload = file.delegate_payload(*entry->processed());
    if (!payload) {
      const Status status = payload.status();
      return error(status.code(), "delegate %zu: %s", index, status.message().c_str());
    }
    delegate.payload = *payload;
    if (const auto* specs = entry->compile_specs()) {
      EDGEWISE_RETURN_IF_ERROR(budget.take(specs->size()));
      for (const fb::CompileSpec* spec : *specs) {
        CompileSpec result;
        if (spec->key() != nullptr) result.key = spec->key()->string_view();
        if (spec->value() != nullptr) {
          result.value = std::as_bytes(std::span(spec->value()->Data(), spec->value()->size()));
        }
        delegate.compile_specs.push_back(result);
      }
    }
    plan.delegates.push_back(std::move(delegate));
  }
  return Status::ok_status();
}

Status check_inputs(const MethodPlan& plan) {
  for (size_t i = 0; i < plan.inputs.size(); ++i) {
    const TensorPlan* tensor = plan.tensor(plan.inputs[i]);
    if (tensor != nullptr && tensor->storage == TensorPlan::Storage::kConstant) {
      return error(Code::kInvalidProgram, "input %zu is a constant", i);
    }
  }
  return Status::ok_status();
}

ValueInfo describe(const ValuePlan& value) {
  struct Visitor {
    ValueInfo info;
    void operator()(const TensorPlan& tensor) {
      info.kind = "Tensor";
      info.type = tensor.type;
      info.sizes = tensor.sizes;
      info.dim_order = tensor.dim_order;
      info.dynamism = tensor.dynamism;
      info.nbytes = tensor.nbytes;
    }
    void operator()(const IntListPlan&) { info.kind = "int[]"; }
    void operator()(const TensorListPlan& list) {
      info.kind = list.optional ? "Tensor?[]" : "Tensor[]";
    }
    void operator()(std::monostate) { info.kind = "None"; }
    void operator()(int64_t) { info.kind = "int"; }
    void operator()(double) { info.kind = "float"; }
    void operator()(bool) { info.kind = "bool"; }
    void operator()(const std::string&) { info.kind = "str"; }
    void operator()(const DoubleList&) { info.kind = "float[]"; }
    void operator()(const BoolList&) { info.kind = "bool[]"; }
  };
  Visitor visitor;
  std::visit(visitor, value);
  return std::move(visitor.info);
}

void fill_info(const fb::ExecutionPlan& source, MethodPlan& plan) {
  MethodInfo& info = plan.info;
  info.name = plan.name;
  for (const uint32_t value : plan.inputs) info.inputs.push_back(describe(plan.values[value]));
  for (const uint32_t value : plan.outputs) info.outputs.push_back(describe(plan.values[value]));
  for (uint32_t i = 0; i < plan.values.size(); ++i) {
    const TensorPlan* tensor = plan.tensor(i);
    if (tensor == nullptr || tensor->attribute.empty()) continue;
    plan.attributes.push_back(i);
    info.attributes.push_back({std::string(tensor->attribute), describe(plan.values[i])});
  }
  for (const size_t bytes : plan.arenas) {
    if (bytes != 0) info.planned_memory.push_back(bytes);
  }
  for (const DelegatePlan& delegate : plan.delegates) {
    info.delegates.push_back({delegate.backend, delegate.payload.size()});
  }
  info.operators = plan.operators;
  info.instruction_count = plan.instructions.size();
  info.instructions.reserve(plan.instructions.size());
  for (const InstructionPlan& instruction : plan.instructions) {
    using Kind = InstructionInfo::Kind;
    const bool is_call = instruction.kind == Kind::kKernel || instruction.kind == Kind::kDelegate;
    info.instructions.push_back({instruction.kind, is_call ? instruction.target : 0});
  }
  if (const fb::ContainerMetadata* meta = source.container_meta_type()) {
    if (meta->encoded_inp_str() != nullptr) info.input_spec = meta->encoded_inp_str()->str();
    if (meta->encoded_out_str() != nullptr) info.output_spec = meta->encoded_out_str()->str();
  }
}

Status read_parts(const PteFile& file, const fb::ExecutionPlan& source, ItemBudget& budget,
                  MethodPlan& plan) {
  EDGEWISE_RETURN_IF_ERROR(read_arenas(source, plan));
  EDGEWISE_RETURN_IF_ERROR(read_values(file, source, budget, plan));
  EDGEWISE_RETURN_IF_ERROR(
      read_indices(source.inputs(), plan.values.size(), "inputs", budget, &plan.inputs));
  EDGEWISE_RETURN_IF_ERROR(
      read_indices(source.outputs(), plan.values.size(), "outputs", budget, &plan.outputs));
  EDGEWISE_RETURN_IF_ERROR(check_inputs(plan));
  EDGEWISE_RETURN_IF_ERROR(read_delegates(file, source, budget, plan));
  return read_instructions(source, budget, plan);
}

}  // namespace

std::string_view to_string(InstructionInfo::Kind kind) {
  static constexpr std::string_view kNames[] = {"kernel", "delegate", "move", "jump", "free"};
  return kNames[static_cast<size_t>(kind)];
}

Result<MethodPlan> read_method(const PteFile& file, const fb::ExecutionPlan& source,
                               ItemBudget& budget) {
  MethodPlan plan;
  if (source.name() == nullptr) {
    return error(Code::kInvalidProgram, "[load] a method has no name");
  }
  plan.name = source.name()->str();
  const Status status = read_parts(file, source, budget, plan);
  if (!status.ok()) return status.within(plan.name);
  fill_info(source, plan);
  const Status sizes = read_input_sizes(file, plan.info);
  if (!sizes.ok()) return sizes.within(plan.name);
  return plan;
}

}  // namespace edgewise
