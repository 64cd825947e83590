// The value table of a method.
#include "checked.h"
#include "method_plan.h"
#include "read_tensor.h"

namespace edgewise {

namespace {

// Gives `tensor`, which the file does not plan, an offset of its own in arena 0.
Status plan_in_own_arena(MethodPlan& plan, TensorPlan& tensor) {
  size_t& used = plan.arenas[0];
  size_t end = 0;
  tensor.offset = used;
  if (!checked_add(used, tensor.nbytes, &end) || !align_up(end, kBufferAlignment, &end) ||
      end > kMaxPlannedBytes) {
    return error(Code::kInvalidProgram, "tensors without a plan need more than %zu bytes",
                 kMaxPlannedBytes);
  }
  used = end;
  return Status::ok_status();
}

Result<ValuePlan> read_tensor_list(const flatbuffers::Vector<int32_t>* items, bool optional,
                                   size_t value_count, ItemBudget& budget) {
  TensorListPlan list;
  list.optional = optional;
  if (items != nullptr) {
    EDGEWISE_RETURN_IF_ERROR(budget.take(items->size()));
    list.items.reserve(items->size());
    for (const int32_t index : *items) {
      if (optional && index == -1) {
        list.items.push_back(kNone);
      } else if (index >= 0 && static_cast<size_t>(index) < value_count) {
        list.items.push_back(static_cast<uint32_t>(index));
      } else {
        return error(Code::kInvalidProgram, "list items refer to value %d; the method has %zu",
                     index, value_count);
      }
    }
  }
  return ValuePlan(std::move(list));
}

Result<ValuePlan> read_value(const PteFile& file, const fb::EValue& source, size_t value_count,
                             ItemBudget& budget, MethodPlan& plan) {
  if (source.val() == nullptr) return error(Code::kInvalidProgram, "it has no content");
  switch (source.val_type()) {
    case fb::KernelTypes::Null:
      return ValuePlan();
    case fb::KernelTypes::Int:
      return ValuePlan(int64_t{source.val_as_Int()->int_val()});
    case fb::KernelTypes::Bool:
      return ValuePlan(source.val_as_Bool()->bool_val());
    case fb::KernelTypes::Double:
      return ValuePlan(source.val_as_Double()->double_val());
    case fb::KernelTypes::String: {
      const auto* text = source.val_as_String()->string_val();
      if (text == nullptr) return ValuePlan(std::string());
      EDGEWISE_RETURN_IF_ERROR(budget.take(text->size()));
      return ValuePlan(text->str());
    }
    case fb::KernelTypes::Tensor: {
      Result<TensorPlan> tensor =
          read_tensor(file, *source.val_as_Tensor(), std::span<const size_t>(plan.arenas), budget);
      if (!tensor) return tensor.status();
      if (tensor->storage == TensorPlan::Storage::kPlanned && tensor->arena == 0) {
        EDGEWISE_RETURN_IF_ERROR(plan_in_own_arena(plan, *tensor));
      }
      return ValuePlan(std::move(*tensor));
    }
    case fb::KernelTypes::IntList: {
      IntListPlan list;
      EDGEWISE_RETURN_IF_ERROR(read_indices(source.val_as_IntList()->items(), value_count,
                                            "list items", budget, &list.items));
      return ValuePlan(std::move(list));
    }
    case fb::KernelTypes::DoubleList: {
      DoubleList list;
      if (const auto* items = source.val_as_DoubleList()->items()) {
        EDGEWISE_RETURN_IF_ERROR(budget.take(items->size()));
        copy_items(*items, &list.items);
      }
      return ValuePlan(std::move(list));
    }
    case fb::KernelTypes::BoolList: {
      BoolList list;
      if (const auto* items = source.val_as_BoolList()->items()) {
        EDGEWISE_RETURN_IF_ERROR(budget.take(items->size()));
        for (const uint8_t item : *items) list.items.push_back(item != 0);
      }
      return ValuePlan(std::move(list));
    }
    case fb::KernelTypes::TensorList:
      return read_tensor_list(source.val_as_TensorList()->items(), /*optional=*/false, value_count,
                              budget);
    case fb::KernelTypes::OptionalTensorList:
      return read_tensor_list(source.val_as_OptionalTensorList()->items(), /*optional=*/true,
                              value_count, budget);
    default:
      return error(Code::kInvalidProgram, "kind %d is not known",
                   static_cast<int>(source.val_type()));
  }
}

// Kinds of list items, once all values are there.
Status check_list_items(const MethodPlan& plan) {
  for (size_t i = 0; i < plan.values.size(); ++i) {
    const auto* list = std::get_if<TensorListPlan>(&plan.values[i]);
    if (list == nullptr) continue;
    for (const uint32_t item : list->items) {
      if (item == kNone || plan.tensor(item) != nullptr) continue;
      if (list->optional && std::holds_alternative<std::monostate>(plan.values[item])) continue;
      return error(Code::kInvalidProgram,
                   "value %zu is a list of tensors, and its item %u is no tensor", i, item);
    }
  }
  return Status::ok_status();
}

}  // namespace

Status ItemBudget::take(size_t items) {
  if (items <= left) {
    left -= items;
    return Status::ok_status();
  }
  return error(Code::kUnsupported, "the lists of the program have more than %zu items", kMaxItems);
}

Status read_arenas(const fb::ExecutionPlan& source, MethodPlan& plan) {
  plan.arenas.assign(1, 0);
  const auto* sizes = source.non_const_buffer_sizes();
  if (const auto* devices = source.non_const_buffer_device()) {
    for (const fb::NonConstBufferDevice* device : *devices) {
      if (device->device_type() != fb::DeviceType::CPU) {
        return error(Code::kUnsupported,
                     "planned memory %d is on device type %d; only the CPU (0) is there",
                     device->buffer_idx(), static_cast<int>(device->device_type()));
      }
    }
  }
  size_t total = 0;
  for (uint32_t i = 1; sizes != nullptr && i < sizes->size(); ++i) {
    const int64_t size = item(*sizes, i);
    if (size < 0 || !in_range(total, static_cast<uint64_t>(size), kMaxPlannedBytes)) {
      return error(Code::kInvalidProgram,
                   "planned memory must be in 0..%zu bytes together; buffer %u has %lld",
                   kMaxPlannedBytes, i, static_cast<long long>(size));
    }
    total += static_cast<size_t>(size);
    plan.arenas.push_back(static_cast<size_t>(size));
  }
  return Status::ok_status();
}

Status read_values(const PteFile& file, const fb::ExecutionPlan& source, ItemBudget& budget,
                   MethodPlan& plan) {
  const auto* values = source.values();
  const size_t count = values == nullptr ? 0 : values->size();
  if (count > kMaxValues) {
    return error(Code::kUnsupported, "a method has at most %zu values; got %zu", kMaxValues, count);
  }
  EDGEWISE_RETURN_IF_ERROR(budget.take(count));
  plan.values.reserve(count);
  for (uint32_t i = 0; i < count; ++i) {
    Result<ValuePlan> value = read_value(file, *values->Get(i), count, budget, plan);
    if (!value) {
      const Status status = value.status();
      return error(status.code(), "value %u: %s", i, status.message().c_str());
    }
    plan.values.push_back(std::move(*value));
  }
  return check_list_items(plan);
}

}  // namespace edgewise
