#include "read_tensor.h"

#include <algorithm>

#include "checked.h"

namespace edgewise {

namespace {

Status read_shape(const fb::Tensor& source, ItemBudget& budget, TensorPlan& plan) {
  plan.type = static_cast<ScalarType>(source.scalar_type());
  switch (source.shape_dynamism()) {
    case fb::TensorShapeDynamism::STATIC:
      plan.dynamism = Dynamism::kStatic;
      break;
    case fb::TensorShapeDynamism::DYNAMIC_BOUND:
      plan.dynamism = Dynamism::kDynamicBound;
      break;
    case fb::TensorShapeDynamism::DYNAMIC_UNBOUND:
      plan.dynamism = Dynamism::kDynamicUnbound;
      break;
    default:
      return error(Code::kInvalidProgram, "shape dynamism %d is not known",
                   static_cast<int>(source.shape_dynamism()));
  }
  if (source.storage_offset() != 0) {
    return error(Code::kUnsupported, "storage_offset must be 0; got %d", source.storage_offset());
  }
  if (source.layout() != 0) {
    return error(Code::kUnsupported, "layout must be 0 (strided); got %d", source.layout());
  }
  if (const auto* sizes = source.sizes()) {
    EDGEWISE_RETURN_IF_ERROR(budget.take(sizes->size()));
    copy_items(*sizes, &plan.sizes);
  }
  if (const auto* order = source.dim_order()) {
    EDGEWISE_RETURN_IF_ERROR(budget.take(order->size()));
    plan.dim_order.assign(order->begin(), order->end());
  }
  if (plan.dynamism == Dynamism::kDynamicUnbound) {
    // The file's sizes mean nothing; the tensor is empty until its shape is known.
    std::ranges::fill(plan.sizes, 0);
  }
  Result<Tensor> tensor =
      Tensor::make(plan.type, plan.sizes, plan.dim_order, nullptr, 0, plan.dynamism);
  if (!tensor) return Status(Code::kInvalidProgram, tensor.status().message());
  plan.dim_order.assign(tensor->dim_order().begin(), tensor->dim_order().end());
  plan.nbytes = tensor->nbytes();
  return Status::ok_status();
}

Status read_allocation(const fb::AllocationDetails& source, std::span<const size_t> arenas,
                       TensorPlan& plan) {
  const uint32_t arena = source.memory_id();
  if (arena == 0 || arena >= arenas.size()) {
    return error(Code::kInvalidProgram, "memory_id must be in 1..%zu; got %u",
                 arenas.empty() ? 0 : arenas.size() - 1, arena);
  }
  const uint64_t offset =
      (uint64_t{source.memory_offset_high()} << 32) | uint64_t{source.memory_offset_low()};
  if (!in_range(offset, plan.nbytes, arenas[arena])) {
    return error(Code::kInvalidProgram,
                 "%zu bytes at offset %llu do not fit planned memory %u of %zu bytes", plan.nbytes,
                 static_cast<unsigned long long>(offset), arena, arenas[arena]);
  }
  if (offset % element_size(plan.type) != 0) {
    return error(Code::kInvalidProgram, "planned at offset %llu, which is not aligned for %s",
                 static_cast<unsigned long long>(offset),
                 std::string(to_string(plan.type)).c_str());
  }
  plan.storage = TensorPlan::Storage::kPlanned;
  plan.arena = arena;
  plan.offset = offset;
  return Status::ok_status();
}

Status read_extra(const fb::ExtraTensorInfo& extra) {
  if (extra.device_type() != fb::DeviceType::CPU) {
    return error(Code::kUnsupported, "it is on device type %d; only the CPU (0) is there",
                 static_cast<int>(extra.device_type()));
  }
  return Status::ok_status();
}

}  // namespace

Result<TensorPlan> read_tensor(const PteFile& file, const fb::Tensor& source,
                               std::span<const size_t> arenas, ItemBudget& budget) {
  TensorPlan plan;
  EDGEWISE_RETURN_IF_ERROR(read_shape(source, budget, plan));
  const fb::ExtraTensorInfo* extra = source.extra_tensor_info();
  if (extra != nullptr) EDGEWISE_RETURN_IF_ERROR(read_extra(*extra));

  const bool external = extra != nullptr && extra->location() == fb::TensorDataLocation::EXTERNAL;
  const uint32_t index = source.data_buffer_idx();
  const fb::AllocationDetails* allocation = source.allocation_info();
  if ((index != 0 || external) && allocation == nullptr) {
    if (plan.dynamism == Dynamism::kDynamicUnbound) {
      return error(Code::kInvalidProgram, "a constant cannot have an unbound shape");
    }
    Result<std::span<const std::byte>> data =
        external ? file.external(source, plan.nbytes) : file.constant(index, plan.nbytes);
    if (!data) return data.status();
    if (reinterpret_cast<uintptr_t>(data->data()) % element_size(plan.type) != 0) {
      return error(
          Code::kInvalidProgram, "constant %s is not aligned for %s",
          external ? extra->fully_qualified_name()->c_str() : std::to_string(index).c_str(),
          std::string(to_string(plan.type)).c_str());
    }
    plan.storage = TensorPlan::Storage::kConstant;
    plan.constant = data->data();
    return plan;
  }
  if (plan.dynamism == Dynamism::kDynamicUnbound) {
    if (index != 0) {
      return error(Code::kUnsupported, "a mutable buffer cannot have an unbound shape");
    }
    plan.storage = TensorPlan::Storage::kDynamic;
    return plan;
  }
  if (allocation != nullptr) {
    EDGEWISE_RETURN_IF_ERROR(read_allocation(*allocation, arenas, plan));
  }
  if (external) {
    Result<std::span<const std::byte>> data = file.external(source, plan.nbytes);
    if (!data) return data.status();
    plan.initial = *data;
  } else if (extra != nullptr && extra->fully_qualified_name() != nullptr) {
    plan.attribute = extra->fully_qualified_name()->string_view();
  }
  if (!external && index != 0) {
    const uint64_t list = extra == nullptr ? 0 : extra->mutable_data_segments_idx();
    Result<std::span<const std::byte>> data = file.initial_value(list, index, plan.nbytes);
    if (!data) return data.status();
    plan.initial = *data;
  }
  return plan;
}

}  // namespace edgewise
