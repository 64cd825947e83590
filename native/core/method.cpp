#include "method.h"

#include <algorithm>
#include <cstring>

#include "guarded.h"
#include "method_input.h"
#include "output_binding.h"
#include "pte_file.h"
#include "zero_copy_input.h"

#ifndef EDGEWISE_CANCEL_CHECK_MS
#define EDGEWISE_CANCEL_CHECK_MS 50
#endif

namespace edgewise {

using Kind = InstructionPlan::Kind;

template <typename Give>
Status MethodInstance::take_input(size_t index, Give&& give) {
  if (index >= plan_.inputs.size()) {
    return error(Code::kInvalidArgument, "[%s] the method has %zu inputs; got input %zu",
                 plan_.name.c_str(), plan_.inputs.size(), index);
  }
  take_back(index);
  const Status status = give(plan_.info.inputs[index], values_[plan_.inputs[index]]);
  if (!status.ok()) {
    return error(status.code(), "[%s] input %zu %s", plan_.name.c_str(), index,
                 status.message().c_str());
  }
  input_set_[index] = true;
  return status;
}

Status MethodInstance::set_input(size_t index, const Value& value) {
  return take_input(index, [&](const ValueInfo& rule, Value& target) {
    return copy_input(rule, value, input_fixed_[index], target);
  });
}

Status MethodInstance::set_input_zero_copy(size_t index, const Value& value) {
  if (!can_read_in_place(index)) return set_input(index, value);
  return take_input(index, [&](const ValueInfo& rule, Value& target) {
    const Result<bool> in_place = edgewise::set_input_zero_copy(rule, value, target);
    input_in_place_[index] = in_place.ok() && *in_place;
    return in_place.status();
  });
}

bool MethodInstance::can_read_in_place(size_t index) {
  if (index >= plan_.inputs.size()) return false;
  if (zero_copy_[index] == Known::kUnknown) {
    const bool yes = allows_zero_copy_input(
        plan_, index, [this](uint32_t op) { return kernels_[op]->argument_count; },
        [this](uint32_t delegate, size_t argument) {
          return delegates_[delegate]->reads_within(argument);
        });
    zero_copy_[index] = yes ? Known::kYes : Known::kNo;
  }
  return zero_copy_[index] == Known::kYes;
}

// The input is in its planned memory again, and has to be set.
void MethodInstance::take_back(size_t index) {
  if (!input_in_place_[index]) return;
  const TensorPlan& plan = *plan_.tensor(plan_.inputs[index]);
  values_[plan_.inputs[index]].get<Tensor>()->set_data(memory_.at(plan), plan.nbytes);
  input_in_place_[index] = false;
  input_set_[index] = false;
}

const Value* MethodInstance::attribute(std::string_view name) const {
  for (size_t i = 0; i < plan_.attributes.size(); ++i) {
    if (plan_.info.attributes[i].name == name) return &values_[plan_.attributes[i]];
  }
  return nullptr;
}

const Value* MethodInstance::written_input(size_t index) const {
  const bool is_written = index < input_written_.size() && input_written_[index];
  return is_written ? &values_[plan_.inputs[index]] : nullptr;
}

const Value* MethodInstance::output(size_t index) const {
  return index < plan_.outputs.size() ? &values_[plan_.outputs[index]] : nullptr;
}

Status MethodInstance::execute(RunProfile* profile) {
  for (size_t i = 0; i < input_set_.size(); ++i) {
    if (!input_set_[i]) {
      return error(Code::kInvalidArgument,
                   "[%s] every input must be set before execute(), again if the plan reuses its "
                   "memory; input %zu is not",
                   plan_.name.c_str(), i);
    }
  }
  EDGEWISE_RETURN_IF_ERROR(check_equal_sizes());
  EDGEWISE_RETURN_IF_ERROR(check_file());
  for (size_t i = 0; i < input_set_.size(); ++i) input_set_[i] = input_kept_[i];
  Status status = run_guarded(profile);
  for (size_t i = 0; i < input_in_place_.size(); ++i) take_back(i);
  if (Status lost = check_file(); !lost.ok())
    return lost;  // of which `status` may be a consequence
  return status;
}

Status MethodInstance::check_file() const {
  const Status status = file_.check_whole();
  return status.ok() ? status : status.within(plan_.name);
}

Status MethodInstance::check_equal_sizes() const {
  for (const EqualSizes& pair : equal_sizes_) {
    const Tensor* one = values_[plan_.inputs[pair.input]].get<Tensor>();
    const Tensor* other = values_[plan_.inputs[pair.other_input]].get<Tensor>();
    if (one == nullptr || other == nullptr || one->rank() <= pair.dim ||
        other->rank() <= pair.other_dim) {
      continue;  // replaced by the program: the next set_input() says so
    }
    if (one->size(pair.dim) == other->size(pair.other_dim)) continue;
    return error(Code::kInvalidArgument,
                 "[%s] dimension %zu of input %zu must equal dimension %zu of input %zu, as when "
                 "the model was exported; got %s and %s",
                 plan_.name.c_str(), pair.other_dim, pair.other_input, pair.dim, pair.input,
                 other->describe().c_str(), one->describe().c_str());
  }
  return Status::ok_status();
}

Status MethodInstance::run_guarded(RunProfile* profile) {
  return guarded(plan_.name.c_str(),
                 [&] { return profile == nullptr ? run(nullptr) : run_profiled(*profile); });
}

std::string MethodInstance::describe(size_t instruction) const {
  std::string text = plan_.name + ": instruction " + std::to_string(instruction);
  const InstructionPlan& plan = plan_.instructions[instruction];
  if (plan.kind == Kind::kKernel) text += ", " + plan_.operators[plan.target];
  if (plan.kind == Kind::kDelegate) {
    text +=
        ", delegate " + std::to_string(plan.target) + " of " + plan_.delegates[plan.target].backend;
  }
  return text;
}

Status MethodInstance::run_profiled(RunProfile& profile) {
  for (const auto& delegate : delegates_) EDGEWISE_RETURN_IF_ERROR(delegate->prepare_profile());
  profile.start(plan_.instructions.size() + last_events_);
  const Status status = run(&profile);
  profile.stop();
  last_events_ = profile.events().size();
  return status;
}

Status MethodInstance::run(RunProfile* profile) {
  const size_t count = plan_.instructions.size();
  uint64_t rounds = 0;
  for (size_t at = 0; at < count;) {
    const Fused* fused = fused_at_.empty() ? nullptr : fused_at_[at];
    // Several at once are known by the last, whose result there is.
    if (fused != nullptr) at = fused->plan->last;
    const InstructionPlan& instruction = plan_.instructions[at];
    Status status;
    size_t next = at + 1;
    if (profile != nullptr) [[unlikely]]
      profile->start_instruction(static_cast<uint32_t>(at));
    switch (instruction.kind) {
      case Kind::kKernel:
      case Kind::kDelegate: {
        if (fused != nullptr) {
          status = run_fused(*fused);
          break;
        }
        const auto [begin, size] = argument_spans_[at];
        status = run_call(instruction, std::span(arguments_).subspan(begin, size), profile);
        break;
      }
      case Kind::kMove:
        status = move(instruction.target, instruction.destination);
        break;
      case Kind::kJumpFalse: {
        const Result<bool> condition = test(instruction.target);
        if (!condition) {
          status = condition.status();
        } else if (!condition.value()) {
          next = instruction.destination;
        }
        break;
      }
      case Kind::kFree:
        status = free(instruction.target);
        break;
    }
    if (status.ok() && next <= at && ++rounds > kMaxRounds) {
      status = error(Code::kUnsupported, "loops may take %llu rounds in one call; got more",
                     static_cast<unsigned long long>(kMaxRounds));
    }
    if (status.ok() && cancel_check_ && is_cancelled()) [[unlikely]]
      status = error(Code::kCancelled, "the caller cancelled the call");
    if (!status.ok()) return status.within(describe(at));
    if (profile != nullptr) [[unlikely]]
      profile->end_instruction();
    at = next;
  }
  return Status::ok_status();
}

bool MethodInstance::is_cancelled() {
  const int64_t now = profile_clock();
  if (now < next_check_) return false;
  next_check_ = now + int64_t{EDGEWISE_CANCEL_CHECK_MS} * 1'000'000;
  return cancel_check_();
}

Status MethodInstance::run_call(const InstructionPlan& instruction,
                                std::span<Value* const> arguments, RunProfile* profile) {
  if (instruction.kind == Kind::kDelegate) {
    Delegate& delegate = *delegates_[instruction.target];
    if (profile != nullptr) [[unlikely]]
      return delegate.execute_profiled(arguments, *profile);
    return delegate.execute(arguments);
  }
  return run_kernel(*kernels_[instruction.target], arguments);
}

Status MethodInstance::run_kernel(const Kernel& kernel, std::span<Value* const> arguments) {
  KernelContext context(kernel.name, arguments, workers_);
  Status status = kernel.function(context);
  // A kernel that went on with defaults did not compute what the program says.
  return status.ok() && !context.ok() ? context.status() : status;
}

Status MethodInstance::run_fused(const Fused& fused) {
  const uint32_t room_of = fused.plan->computed_in;
  if (room_of == kNone) return run_kernel(*fused.kernel, fused.arguments);
  Tensor& out = *fused.arguments.back()->get<Tensor>();
  const Tensor& room = *values_[room_of].get<Tensor>();
  void* data = out.data<void>();
  const size_t capacity = out.capacity();
  out.set_data(room.data<void>(), room.capacity());
  const Status status = run_kernel(*fused.kernel, fused.arguments);
  out.set_data(data, capacity);
  if (status.ok() && out.nbytes() != 0) std::memcpy(data, room.data<void>(), out.nbytes());
  return status;
}

Status MethodInstance::move(uint32_t from, uint32_t to) {
  if (from == to) return Status::ok_status();
  const Tensor* tensor = values_[from].get<Tensor>();
  if (tensor == nullptr || tensor->buffer() == nullptr) {
    values_[to] = values_[from];
    return Status::ok_status();
  }
  // A shared buffer would leave one of the two with a stale pointer when the other grows.
  auto buffer = std::make_shared<DynamicBuffer>(tensor->buffer()->limit());
  EDGEWISE_RETURN_IF_ERROR(buffer->reserve(tensor->nbytes()));
  if (tensor->nbytes() != 0 && tensor->data<void>() != nullptr) {
    std::memcpy(buffer->data(), tensor->data<void>(), tensor->nbytes());
  }
  Tensor moved = *tensor;
  moved.set_data(buffer->data(), buffer->capacity());
  moved.set_buffer(std::move(buffer));
  values_[to] = Value(std::move(moved));
  return Status::ok_status();
}

Result<bool> MethodInstance::test(uint32_t value) const {
  if (const bool* condition = values_[value].get<bool>()) return *condition;
  const Tensor* tensor = values_[value].get<Tensor>();
  if (tensor == nullptr || tensor->type() != ScalarType::kBool) {
    return error(Code::kInvalidProgram, "a jump's condition must be a bool; value %u is %s", value,
                 tensor ? tensor->describe().c_str() : std::string(values_[value].kind()).c_str());
  }
  if (tensor->numel() != 0 && tensor->data<void>() == nullptr) {
    return error(Code::kInvalidProgram, "a jump's condition, value %u, is not computed yet", value);
  }
  const uint8_t* data = tensor->data<uint8_t>();
  return std::all_of(data, data + tensor->numel(), [](uint8_t item) { return item != 0; });
}

Status MethodInstance::free(uint32_t value) {
  Tensor* tensor = values_[value].get<Tensor>();
  if (tensor == nullptr || tensor->buffer() == nullptr) return Status::ok_status();
  tensor->buffer()->release();
  tensor->set_data(nullptr, 0);
  const std::vector<int64_t> empty(tensor->rank(), 0);
  return tensor->resize(empty);
}

bool MethodInstance::bind_output(size_t index, void* data, size_t capacity_bytes) {
  if (index >= plan_.outputs.size()) return false;
  Tensor* tensor = values_[plan_.outputs[index]].get<Tensor>();
  const TensorPlan* plan = plan_.tensor(plan_.outputs[index]);
  if (tensor == nullptr || plan == nullptr) return false;
  if (bindable_[index] == Known::kUnknown) {
    const bool yes =
        can_bind_output(plan_, index, [this](uint32_t op) { return kernels_[op]->argument_count; });
    bindable_[index] = yes ? Known::kYes : Known::kNo;
  }
  if (bindable_[index] == Known::kNo) return false;
  if (data == nullptr) {
    bindings_[index] = nullptr;
    apply_binding(index);
    return true;
  }
  if (reinterpret_cast<uintptr_t>(data) % element_size(plan->type) != 0 ||
      capacity_bytes < plan->nbytes) {
    return false;
  }
  bindings_[index] = data;
  apply_binding(index);
  return true;
}

void MethodInstance::apply_binding(size_t index) {
  const uint32_t value = plan_.outputs[index];
  const TensorPlan& plan = *plan_.tensor(value);
  void* data = bindings_[index] != nullptr ? bindings_[index] : memory_.at(plan);
  values_[value].get<Tensor>()->set_data(data, plan.nbytes);
}

std::vector<std::vector<DelegateOperation>> MethodInstance::delegate_operations() {
  std::vector<std::vector<DelegateOperation>> result;
  for (const auto& delegate : delegates_) result.push_back(delegate->operations());
  return result;
}

Status MethodInstance::reset() {
  memory_.clear();
  EDGEWISE_RETURN_IF_ERROR(fill_values());
  for (size_t i = 0; i < bindings_.size(); ++i) {
    if (bindings_[i] != nullptr) apply_binding(i);
  }
  for (size_t i = 0; i < plan_.inputs.size(); ++i) {
    input_set_[i] = plan_.tensor(plan_.inputs[i]) == nullptr;
    input_in_place_[i] = false;
  }
  return check_file();
}

}  // namespace edgewise
