// What happens once, when a method is loaded.
#include <algorithm>
#include <map>

#include "def_use.h"
#include "method.h"

namespace edgewise {

namespace {

// "Tensor": what a call gives, as far as a file tells it.
std::string kind_of(const ValuePlan& value) {
  struct Visitor {
    std::string operator()(std::monostate) { return "None"; }
    std::string operator()(int64_t) { return "int"; }
    std::string operator()(double) { return "float"; }
    std::string operator()(bool) { return "bool"; }
    std::string operator()(const std::string&) { return "str"; }
    std::string operator()(const TensorPlan&) { return "Tensor"; }
    std::string operator()(const IntListPlan&) { return "int[]"; }
    std::string operator()(const DoubleList&) { return "float[]"; }
    std::string operator()(const BoolList&) { return "bool[]"; }
    std::string operator()(const TensorListPlan& list) {
      return list.optional ? "Tensor?[]" : "Tensor[]";
    }
  };
  return std::visit(Visitor(), value);
}

// "my_ns::my_op.out(Tensor, float, *, Tensor out)", read off its first call: arguments, then the
// returned value, which is the `out` arguments once more.
std::string schema_of(const MethodPlan& plan, const InstructionPlan& call) {
  std::string text = plan.operators[call.target] + "(";
  const size_t count = call.args.empty() ? 0 : call.args.size() - 1;
  std::vector<uint32_t> outputs;
  if (!call.args.empty()) {
    const auto* list = std::get_if<TensorListPlan>(&plan.values[call.args.back()]);
    outputs = list != nullptr ? list->items : std::vector<uint32_t>{call.args.back()};
  }
  for (size_t i = 0; i < count; ++i) {
    if (i != 0) text += ", ";
    text += kind_of(plan.values[call.args[i]]);
    if (std::ranges::find(outputs, call.args[i]) != outputs.end()) text += " out";
  }
  return text + ")";
}

// All operators without a kernel in one message, each with its first instruction.
Status missing_operators(const MethodPlan& plan, const std::map<uint32_t, size_t>& missing) {
  std::string list;
  for (const auto& [op, instruction] : missing) {
    if (!list.empty()) list += ", ";
    list += schema_of(plan, plan.instructions[instruction]) + " (instruction " +
            std::to_string(instruction) + ")";
  }
  const std::string& first = plan.operators[missing.begin()->first];
  return error(Code::kNotFound,
               "[%s] every operator needs a kernel; got none for %s; try "
               "@edgewise.runtime.register_kernel(\"%s\") in Python, EDGEWISE_REGISTER_KERNEL in "
               "C++ and edgewise.runtime.load_kernels(), or a backend that takes them",
               plan.name.c_str(), list.c_str(), first.c_str());
}

}  // namespace

Result<std::unique_ptr<Method>> MethodInstance::create(std::shared_ptr<const Program> program,
                                                       const PteFile& file, const MethodPlan& plan,
                                                       std::shared_ptr<Session> session,
                                                       size_t max_memory, Workers* workers,
                                                       const DelegateFactory& make_delegate) {
  std::unique_ptr<MethodInstance> method(
      new MethodInstance(std::move(program), file, plan, max_memory, workers));
  EDGEWISE_RETURN_IF_ERROR(method->resolve_kernels());
  Result<MethodMemory> memory = MethodMemory::allocate(plan, std::move(session));
  if (!memory) return memory.status().within(plan.name);
  method->memory_ = std::move(*memory);
  method->values_.resize(plan.values.size());
  EDGEWISE_RETURN_IF_ERROR(method->fill_values());
  method->resolve_fused_calls();
  method->find_input_rules();
  method->bindings_.resize(plan.outputs.size());
  method->bindable_.resize(plan.outputs.size(), Known::kUnknown);
  method->zero_copy_.resize(plan.inputs.size(), Known::kUnknown);
  method->input_in_place_.resize(plan.inputs.size(), false);
  for (size_t i = 0; i < plan.delegates.size(); ++i) {
    Result<std::unique_ptr<Delegate>> delegate = make_delegate(i);
    if (!delegate) return delegate.status();
    method->delegates_.push_back(std::move(*delegate));
  }
  return std::unique_ptr<Method>(std::move(method));
}

Status MethodInstance::resolve_kernels() {
  std::map<uint32_t, size_t> missing;
  kernels_.resize(plan_.operators.size(), nullptr);
  for (size_t i = 0; i < plan_.instructions.size(); ++i) {
    const InstructionPlan& instruction = plan_.instructions[i];
    argument_spans_.emplace_back(arguments_.size(), instruction.args.size());
    // Pointers are filled in below, when the table no longer moves.
    arguments_.resize(arguments_.size() + instruction.args.size());
    if (instruction.kind != InstructionPlan::Kind::kKernel) continue;
    const Kernel*& kernel = kernels_[instruction.target];
    if (kernel == nullptr) kernel = find_kernel(plan_.operators[instruction.target]);
    if (kernel == nullptr) {
      missing.try_emplace(instruction.target, i);
    } else if (instruction.args.size() < kernel->argument_count) {
      return error(Code::kInvalidProgram, "[%s] instruction %zu: %s has %zu arguments; got %zu",
                   plan_.name.c_str(), i, kernel->name.c_str(), kernel->argument_count,
                   instruction.args.size());
    }
  }
  return missing.empty() ? Status::ok_status() : missing_operators(plan_, missing);
}

void MethodInstance::resolve_fused_calls() {
  for (const FusedCall& call : plan_.fused) {
    const Kernel* kernel = find_kernel(call.kernel);
    if (kernel == nullptr || kernel->argument_count != call.args.size()) continue;
    Fused fused{&call, kernel, {}};
    for (const uint32_t arg : call.args) {
      fused.arguments.push_back(arg == kNone ? &none_ : &values_[arg]);
    }
    fused_.push_back(std::move(fused));
  }
  if (fused_.empty()) return;
  fused_at_.resize(plan_.instructions.size(), nullptr);
  for (const Fused& fused : fused_) fused_at_[fused.plan->first] = &fused;
}

Status MethodInstance::fill_values() {
  for (size_t i = 0; i < values_.size(); ++i) {
    const Status status = fill_value(plan_.values[i], values_[i]);
    if (!status.ok()) return status.within(plan_.name + ": value " + std::to_string(i));
  }
  for (size_t i = 0; i < plan_.instructions.size(); ++i) {
    const std::vector<uint32_t>& args = plan_.instructions[i].args;
    for (size_t j = 0; j < args.size(); ++j) {
      arguments_[argument_spans_[i].first + j] = &values_[args[j]];
    }
  }
  return Status::ok_status();
}

Status MethodInstance::fill_value(const ValuePlan& source, Value& value) {
  if (const auto* plan = std::get_if<TensorPlan>(&source)) {
    const bool constant = plan->storage == TensorPlan::Storage::kConstant;
    const bool dynamic = plan->storage == TensorPlan::Storage::kDynamic;
    void* data = nullptr;
    if (constant) data = const_cast<std::byte*>(plan->constant);
    if (!constant && !dynamic) data = memory_.at(*plan);
    Result<Tensor> tensor = Tensor::make(plan->type, plan->sizes, plan->dim_order, data,
                                         dynamic ? 0 : plan->nbytes, plan->dynamism);
    if (!tensor) return tensor.status();
    tensor->set_writable(!constant);
    if (dynamic) tensor->set_buffer(std::make_shared<DynamicBuffer>(max_memory_));
    // The memory is zero, and stays untouched where nothing else is wanted. What is shared may have
    // changed already: the session filled it.
    const auto is_zero = [](std::byte byte) { return byte == std::byte{0}; };
    if (!constant && !plan_.shared_arenas[plan->arena] &&
        !std::all_of(plan->initial.begin(), plan->initial.end(), is_zero)) {
      std::copy(plan->initial.begin(), plan->initial.end(), static_cast<std::byte*>(data));
    }
    value = Value(std::move(*tensor));
  } else if (const auto* ints = std::get_if<IntListPlan>(&source)) {
    IntList list;
    list.items.reserve(ints->items.size());
    for (const uint32_t item : ints->items) list.items.push_back(&values_[item]);
    value = Value(std::move(list));
  } else if (const auto* tensors = std::get_if<TensorListPlan>(&source)) {
    TensorList list;
    list.optional = tensors->optional;
    list.items.reserve(tensors->items.size());
    for (const uint32_t item : tensors->items) {
      list.items.push_back(item == kNone ? nullptr : &values_[item]);
    }
    value = Value(std::move(list));
  } else {
    std::visit(
        [&value](const auto& plain) {
          if constexpr (std::is_constructible_v<Value::Variant, decltype(plain)>) {
            value = Value(Value::Variant(plain));
          }
        },
        source);
  }
  return Status::ok_status();
}

void MethodInstance::find_input_rules() {
  equal_sizes_ = find_equal_sizes(plan_.info);
  const std::vector<bool> exclusive = find_exclusive(plan_);
  std::vector<bool> read(plan_.values.size(), false);
  std::vector<bool> written(plan_.values.size(), false);
  for (const InstructionPlan& instruction : plan_.instructions) {
    for (const uint32_t arg : instruction.args) {
      read[arg] = true;
      if (const auto* list = std::get_if<IntListPlan>(&plan_.values[arg])) {
        for (const uint32_t item : list->items) read[item] = true;
      }
    }
    const bool is_call = instruction.kind == InstructionPlan::Kind::kKernel ||
                         instruction.kind == InstructionPlan::Kind::kDelegate;
    if (!is_call) read[instruction.target] = true;
    if (instruction.kind != InstructionPlan::Kind::kKernel) continue;
    const size_t arguments = kernels_[instruction.target]->argument_count;
    for (const uint32_t value : returned_values(plan_, instruction, arguments)) {
      written[value] = true;
    }
  }
  // An input handed on as an output may change, too.
  for (const uint32_t output : plan_.outputs) read[output] = true;
  for (const uint32_t input : plan_.inputs) {
    const bool is_tensor = plan_.tensor(input) != nullptr;
    input_kept_.push_back(!is_tensor || exclusive[input]);
    input_fixed_.push_back(!is_tensor && !read[input]);
    // What is not a tensor has the value of export time until it is set.
    input_set_.push_back(!is_tensor);
    input_written_.push_back(is_tensor && written[input]);
  }
}

}  // namespace edgewise
