#include "backends/xnnpack/delegate.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "backends/xnnpack/constant_data.h"
#include "backends/xnnpack/dequantize_weights.h"
#include "backends/xnnpack/executor/elementwise_nodes.h"
#include "backends/xnnpack/fold.h"
#include "backends/xnnpack/memory_need.h"
#include "backends/xnnpack/node_types.h"
#include "backends/xnnpack/non_temporal_loads.h"
#include "backends/xnnpack/payload.h"
#include "backends/xnnpack/read_graph.h"
#include "backends/xnnpack/shapes.h"
#include "backends/xnnpack/spin_wait.h"
#include "backends/xnnpack/upcast_half.h"

namespace edgewise::xnnpack {
namespace {

Result<Tensor*> tensor_of(const GraphValue& value, std::span<Value* const> arguments) {
  Value* argument = arguments[value.external_id];
  Tensor* tensor = argument == nullptr ? nullptr : argument->get<Tensor>();
  if (tensor != nullptr) return tensor;
  return error(Code::kInvalidArgument, "[xnnpack] argument %u must be a tensor; got %.*s",
               value.external_id,
               argument == nullptr ? 4 : static_cast<int>(argument->kind().size()),
               argument == nullptr ? "none" : argument->kind().data());
}

Status check_type(const GraphValue& value, const Tensor& tensor) {
  if (value.is_index) {
    if (tensor.type() == ScalarType::kLong || tensor.type() == ScalarType::kInt) return {};
  } else if (accepts(value.type, tensor.type())) {
    return {};
  }
  return error(Code::kInvalidArgument, "[xnnpack] argument %u must hold %s; got %s",
               value.external_id, value.is_index ? "int64 or int32" : name_of(value.type),
               tensor.describe().c_str());
}

// Writers call a tensor without dimensions one with a single element.
bool is_of_rank(const Shape& shape, size_t rank) {
  return shape.rank == rank || (rank == 0 && shape.rank == 1 && shape[0] == 1);
}

}  // namespace

XnnpackDelegate::XnnpackDelegate(std::shared_ptr<ProgramState> state) : state_(std::move(state)) {}

XnnpackDelegate::~XnnpackDelegate() {
  const std::lock_guard lock(state_->mutex());
  executor_.reset();
  other_executor_.reset();
}

Result<std::unique_ptr<Delegate>> XnnpackDelegate::make(const DelegateInit& init,
                                                        std::shared_ptr<ProgramState> state) {
  auto payload = open_payload(init.payload);
  if (!payload.ok()) return payload.status();
  auto graph = read_graph(*payload, init.named_data);
  if (!graph.ok()) return graph.status();
  if (auto status = check_types(*graph); !status.ok()) return status;
  fold_nodes(&*graph);
  std::vector<ImageEntry> entries = ImageEntry::take(&*graph);
  dequantize_weights(&*graph);
  upcast_half(&*graph, is_fast_in_half);
  std::vector<Shape> shapes = graph->serialized_shapes();
  if (auto status = infer_shapes(*graph, &shapes); !status.ok()) return status;
  if (auto status = check_memory(*graph, shapes, init.max_memory); !status.ok()) return status;
  for (uint32_t output : graph->outputs) {
    const GraphValue& value = graph->values[output];
    if (is_of_rank(value.shape, shapes[output].rank)) continue;
    return error(Code::kInvalidProgram, "[xnnpack] output value %u must be %s; got %s",
                 value.serialized_id, shapes[output].text().c_str(), value.shape.text().c_str());
  }

  std::unique_ptr<XnnpackDelegate> delegate(new XnnpackDelegate(std::move(state)));
  delegate->graph_ = std::move(*graph);
  delegate->entries_ = std::move(entries);
  delegate->shapes_ = std::move(shapes);
  delegate->named_data_ = init.named_data;
  delegate->max_memory_ = init.max_memory;
  delegate->kernels_ = init.own_kernels ? float_kernels() : nullptr;
  const std::lock_guard lock(delegate->state_->mutex());
  delegate->change_executor();
  if (auto status = delegate->make_executor(); !status.ok()) return status;
  delegate->addresses_.resize(delegate->graph_.values.size());
  return std::unique_ptr<Delegate>(std::move(delegate));
}

ImageEntry* XnnpackDelegate::entry_of(size_t input) {
  const auto found = std::find_if(entries_.begin(), entries_.end(), [&](const ImageEntry& entry) {
    return entry.position() == input;
  });
  return found == entries_.end() ? nullptr : &*found;
}

// XNNPACK may read past the end of what it is given; image entries do not.
bool XnnpackDelegate::reads_within(size_t index) const {
  return std::ranges::any_of(
      entries_, [&](const ImageEntry& entry) { return entry.argument().external_id == index; });
}

Status XnnpackDelegate::read_inputs(std::span<Value* const> arguments, bool* is_changed) {
  for (size_t i = 0; i < graph_.inputs.size(); ++i) {
    ImageEntry* entry = entry_of(i);
    const GraphValue& value =
        entry == nullptr ? graph_.values[graph_.inputs[i]] : entry->argument();
    auto found = tensor_of(value, arguments);
    if (!found.ok()) return found.status();
    const Tensor& tensor = **found;
    if (auto status = check_type(value, tensor); !status.ok()) return status;
    if (!is_of_rank(value.shape, tensor.rank())) {
      return error(Code::kInvalidArgument, "[xnnpack] argument %u must have %zu dimensions; got %s",
                   value.external_id, value.shape.rank, tensor.describe().c_str());
    }
    Shape shape;
    shape.rank = value.shape.rank;
    shape[0] = 1;
    for (size_t k = 0; k < tensor.rank(); ++k) {
      shape[k] = static_cast<size_t>(tensor.size(tensor.dim_order()[k]));
    }
    if (entry != nullptr) {
      EDGEWISE_RETURN_IF_ERROR(entry->resize(shape));
      shape = ImageEntry::inside(shape);
    }
    Shape& known = shapes_[graph_.inputs[i]];
    if (!(shape == known)) {
      *is_changed = true;
      known = shape;
    }
    void* data = tensor.data<void>();
    if (data == nullptr && tensor.numel() != 0) {
      return error(Code::kInvalidArgument, "[xnnpack] argument %u must have data; got none",
                   value.external_id);
    }
    if (entry != nullptr) data = entry->bind(data);
    void*& address = addresses_[graph_.inputs[i]];
    if (address != data) is_set_up_ = false;
    address = data;
  }
  return {};
}

void XnnpackDelegate::change_executor() {
  const bool is_for_small = kernels_ != nullptr && is_small(graph_, shapes_);
  if (std::exchange(is_for_small_, is_for_small) == is_for_small) return;
  std::swap(executor_, other_executor_);
}

Status XnnpackDelegate::make_executor() {
  executor_.reset();
  auto executor = Executor::make(graph_, shapes_, kernels_, *state_, named_data_);
  if (!executor.ok()) return executor.status();
  executor_ = std::move(*executor);
  if (named_data_ != nullptr) release_constants(graph_, *named_data_);
  return {};
}

Status XnnpackDelegate::plan() {
  is_planned_ = false;
  is_set_up_ = false;
  for (uint32_t input : graph_.inputs) {
    if (shapes_[input].fits()) continue;
    return error(Code::kInvalidArgument, "[xnnpack] argument %u is too large: %s",
                 graph_.values[input].external_id, shapes_[input].text().c_str());
  }
  if (auto status = infer_shapes(graph_, &shapes_); !status.ok()) {
    return Status(Code::kInvalidArgument,
                  status.message() + "; the arguments' shapes do not go together");
  }
  // Without elements to compute there is nothing to run, whatever the sizes in between.
  is_idle_ = std::ranges::all_of(graph_.outputs, [&](uint32_t o) { return shapes_[o].has_zero(); });
  if (is_idle_) {
    is_planned_ = true;
    return {};
  }
  for (const Shape& shape : shapes_) {
    if (shape.has_zero()) {
      return error(Code::kUnsupported, "[xnnpack] empty tensors are not supported; got %s",
                   shape.text().c_str());
    }
  }
  if (auto status = check_memory(graph_, shapes_, max_memory_); !status.ok()) return status;
  change_executor();
  if (!executor_ || !executor_->can_take(shapes_)) {
    EDGEWISE_RETURN_IF_ERROR(make_executor());
  }
  auto status = executor_->reshape(shapes_);
  is_planned_ = status.ok();
  return status;
}

Status XnnpackDelegate::prepare_outputs(std::span<Value* const> arguments) {
  for (size_t i = 0; i < graph_.outputs.size(); ++i) {
    const GraphValue& value = graph_.values[graph_.outputs[i]];
    const Shape& shape = shapes_[graph_.outputs[i]];
    auto found = tensor_of(value, arguments);
    if (!found.ok()) return found.status();
    Tensor& tensor = **found;
    if (auto status = check_type(value, tensor); !status.ok()) return status;
    if (!is_of_rank(shape, tensor.rank())) {
      return error(Code::kInvalidArgument, "[xnnpack] argument %u must be an output of %s; got %s",
                   value.external_id, shape.text().c_str(), tensor.describe().c_str());
    }
    int64_t sizes[kMaxRank] = {};
    for (size_t k = 0; k < tensor.rank(); ++k) {
      sizes[tensor.dim_order()[k]] = static_cast<int64_t>(shape[k]);
    }
    if (auto status = tensor.resize(std::span(sizes, tensor.rank())); !status.ok()) {
      return status.within("xnnpack");
    }
    void* data = tensor.data<void>();
    if ((data == nullptr && !is_idle_) || tensor.capacity() < tensor.nbytes()) {
      return error(Code::kInvalidArgument,
                   "[xnnpack] argument %u must have memory for %zu bytes; got %zu",
                   value.external_id, tensor.nbytes(), data == nullptr ? 0 : tensor.capacity());
    }
    void*& address = addresses_[graph_.outputs[i]];
    if (address != data) is_set_up_ = false;
    address = data;
  }
  return {};
}

// XNNPACK writes int32; from the end, so that nothing is overwritten before it is read.
void XnnpackDelegate::upcast_indices(std::span<Value* const> arguments) const {
  for (uint32_t output : graph_.outputs) {
    const GraphValue& value = graph_.values[output];
    if (!value.is_index) continue;
    const Tensor& tensor = *arguments[value.external_id]->get<Tensor>();
    if (tensor.type() != ScalarType::kLong) continue;
    auto* bytes = tensor.data<char>();
    for (auto i = static_cast<size_t>(tensor.numel()); i-- > 0;) {
      int32_t narrow;
      std::memcpy(&narrow, bytes + i * sizeof(narrow), sizeof(narrow));
      const int64_t wide = narrow;
      std::memcpy(bytes + i * sizeof(wide), &wide, sizeof(wide));
    }
  }
}

std::vector<DelegateOperation> XnnpackDelegate::operations() {
  const std::lock_guard lock(state_->mutex());
  if (executor_ == nullptr) return {};
  std::vector<DelegateOperation> result;
  for (const ImageEntry& entry : entries_) {
    result.push_back({.operation = "Image",
                      .sizes = "",
                      .kernel = "edgewise Image entry",
                      .nodes = entry.nodes(),
                      .refused = {}});
  }
  for (DelegateOperation& one : executor_->operations(shapes_)) {
    result.push_back(std::move(one));
  }
  return result;
}

Status XnnpackDelegate::prepare_profile() {
  const std::lock_guard lock(state_->mutex());
  if (executor_ != nullptr) executor_->prepare_profile();
  if (profile_parts_ != nullptr) return {};
  std::vector<ProfilePart> parts = {{.name = "planning", .nodes = {}, .counters = {}}};
  for (const ImageEntry& entry : entries_) {
    parts.push_back({.name = "edgewise Image entry", .nodes = entry.nodes(), .counters = {}});
  }
  profile_parts_ = std::make_shared<const std::vector<ProfilePart>>(std::move(parts));
  return {};
}

void XnnpackDelegate::run_entries(RunProfile* profile) {
  for (size_t i = 0; i < entries_.size(); ++i) {
    const int64_t begin = profile == nullptr ? 0 : profile_clock();
    entries_[i].run(state_->threadpool());
    if (profile != nullptr) profile->add_part(profile_parts_, i + 1, begin, profile_clock());
  }
}

Status XnnpackDelegate::run(std::span<Value* const> arguments, RunProfile* profile) {
  if (arguments.size() < graph_.externals) {
    return error(Code::kInvalidArgument, "[xnnpack] a delegate must get %u arguments; got %zu",
                 graph_.externals, arguments.size());
  }
  if (state_->is_without_threads()) {
    return error(
        Code::kUnsupported,
        "[xnnpack] a process must run what it loaded itself: the threads of this program "
        "stayed in the process that was forked; try loading it in the child, or threads=1");
  }
  const std::lock_guard lock(state_->mutex());
  bool is_changed = !is_planned_;
  if (auto status = read_inputs(arguments, &is_changed); !status.ok()) {
    is_planned_ = is_planned_ && !is_changed;
    return status;
  }
  if (is_changed) {
    const int64_t begin = profile == nullptr ? 0 : profile_clock();
    EDGEWISE_RETURN_IF_ERROR(plan());
    if (profile != nullptr) profile->add_part(profile_parts_, 0, begin, profile_clock());
  }
  EDGEWISE_RETURN_IF_ERROR(prepare_outputs(arguments));
  if (is_idle_) return {};
  if (!is_set_up_) {
    EDGEWISE_RETURN_IF_ERROR(executor_->set_pointers(addresses_));
    is_set_up_ = true;
  }
  const SpinWaitPolicy spin_wait;
  const NonTemporalLoads loads(state_->weights().bytes());
  run_entries(profile);
  EDGEWISE_RETURN_IF_ERROR(profile == nullptr ? executor_->run()
                                              : executor_->run_profiled(*profile));
  upcast_indices(arguments);
  return {};
}

}  // namespace edgewise::xnnpack
