#include "backends/xnnpack/executor/xnnpack_operator.h"

#include <algorithm>

#include "backends/xnnpack/describe_weights.h"
#include "backends/xnnpack/executor/quantized_rows.h"
#include "backends/xnnpack/xnn_error.h"
#include "edgewise/profile.h"

namespace edgewise::xnnpack {
namespace {

// Handing a loop to other threads and waiting for the last of them costs microseconds; a model
// that computes one row at a time has hundreds of nodes that take less. What an operator takes on
// one thread is seen when it first runs, and for other sizes follows from that, unless it computes
// as many products, or elements, as kLeastShared.
constexpr double kQuickTime = 4000;  // nanoseconds
constexpr size_t kLeastShared = size_t{1} << 20;

// Products, or elements; at least 1.
size_t work_of(const GraphNode& node, const std::vector<Shape>& shapes) {
  size_t work = shapes[node.outputs[0]].elements();
  if (node.is_convolution() || node.kind == NodeKind::kFullyConnected) {
    const Shape& filter = shapes[node.inputs[1]];
    const size_t columns = std::max<size_t>(shapes[node.outputs[0]].last(), 1);
    work *= std::max<size_t>(filter.elements() / columns, 1);
  } else if (node.kind == NodeKind::kBatchMatrixMultiply) {
    work *= shapes[node.inputs[0]].last();
  }
  for (uint32_t input : node.inputs) {
    if (input != kNone && !node.is_convolution()) work = std::max(work, shapes[input].elements());
  }
  return work;
}

}  // namespace

void keep_operator(const char* name, std::vector<OperatorCalls>* calls, xnn_operator_t op,
                   decltype(OperatorCalls::reshape) reshape, decltype(OperatorCalls::setup) setup) {
  calls->push_back({name, OperatorPtr(op), std::move(reshape), std::move(setup)});
}

Result<std::unique_ptr<Step>> XnnpackOperator::make(const Graph& graph,
                                                    const std::vector<Shape>& shapes, size_t index,
                                                    ProgramState& state,
                                                    const NamedData* named_data) {
  const GraphNode& node = graph.nodes[index];
  std::unique_ptr<XnnpackOperator> step(new XnnpackOperator(graph, node, state));
  auto constants = ConstantData::make(graph, node.inputs);
  if (!constants.ok()) return constants.status();
  describe_weights(graph, shapes, node, constants->addresses, &step->weights_);
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    const uint32_t input = node.inputs[i];
    if (input == kNone) continue;
    const GraphValue& value = graph.values[input];
    if (named_data != nullptr && value.data.is_named) {
      step->weights_.lies_in(*named_data, value.data.bytes);
    }
    if (!value.is_constant()) step->reads_.push_back(input);
  }
  const OperatorNode made_for{graph, node, shapes, constants->addresses, &step->weights_};
  auto status = check_xnn(make_operators(made_for, &step->calls_), node);
  if (!status.ok()) return status;
  step->constants_ = std::move(constants->addresses);
  step->copies_ = std::move(constants->copies);
  if (packs_weights(graph, node)) {
    step->copies_.resize(1);
    std::fill(step->constants_.begin() + 1, step->constants_.end(), nullptr);
  }
  return std::unique_ptr<Step>(std::move(step));
}

// What an element depends on is at its own index of an input of the same size.
bool XnnpackOperator::may_overwrite(uint32_t input) const {
  const NodeTraits& traits = traits_of(node_.kind);
  if (traits.unary == xnn_unary_invalid && traits.binary == xnn_binary_invalid &&
      node_.kind != NodeKind::kCopy) {
    return false;
  }
  return graph_.values[input].type == graph_.values[node_.outputs[0]].type;
}

// The size that an operator cannot change in XNNPACK's versions of 2024. Pooling and resizing keep
// a table of where each window's pixels lie, which is made anew for other heights and widths, not
// for other channels. A convolution that is quantized at run time has a row of padding for each
// image: for more images it reads, and frees, some that it never had.
size_t XnnpackOperator::kept_size_of(const std::vector<Shape>& shapes) const {
  const Shape& in = shapes[node_.inputs[0]];
  if (node_.is_convolution()) {
    return graph_.values[node_.inputs[0]].type == DataType::kQdint8 ? in[0] : 0;
  }
  const bool keeps_table = node_.is_windowed() || node_.kind == NodeKind::kStaticResizeBilinear2D;
  return keeps_table ? in.last() : 0;
}

bool XnnpackOperator::can_take(const std::vector<Shape>& shapes) const {
  return kept_size_ == 0 || kept_size_of(shapes) == kept_size_;
}

Status XnnpackOperator::reshape(const std::vector<Shape>& shapes) {
  workspaces_.assign(calls_.size(), 0);
  for (size_t i = 0; i < calls_.size(); ++i) {
    const auto status =
        calls_[i].reshape(calls_[i].op.get(), {node_, shapes, threads_, &workspaces_[i]});
    if (status != xnn_status_success) return check_xnn(status, node_);
  }
  const auto offset_of = [&](uint32_t value) {
    const bool has_params = graph_.values[value].type == DataType::kQdint8;
    return has_params ? params_offset(graph_.values[value], shapes[value]) : 0;
  };
  const uint32_t out = node_.outputs[0];
  in_offset_ = offset_of(node_.inputs[0]);
  out_offset_ = offset_of(out);
  rows_ = out_offset_ == 0 ? 0 : quantized_rows(graph_.values[out], shapes[out]);
  work_ = work_of(node_, shapes);
  kept_size_ = kept_size_of(shapes);
  choose_sharing();
  return {};
}

Status XnnpackOperator::set_pointers(std::span<void* const> addresses, const Scratch& scratch) {
  OperatorAddresses to;
  const auto params_at = [](const Address& address, size_t offset) -> RowParams {
    if (offset == 0) return {};
    auto* bytes = static_cast<std::byte*>(address.data) + offset;
    return {reinterpret_cast<xnn_quantization_params*>(bytes)};
  };
  for (size_t i = 0; i < node_.inputs.size(); ++i) {
    if (constants_[i] != nullptr) {
      to.in[i] = constants_[i];
    } else if (node_.inputs[i] != kNone) {
      to.in[i] = addresses[node_.inputs[i]];
    }
  }
  for (size_t i = 0; i < node_.outputs.size(); ++i) to.out[i] = addresses[node_.outputs[i]];
  to.in_params = params_at(to.in[0], in_offset_);
  to.out_params = params_at(to.out[0], out_offset_);
  params_ = to.out_params.data;
  for (size_t i = 0; i < calls_.size(); ++i) {
    const OperatorCalls& call = calls_[i];
    to.workspace.data = workspaces_[i] == 0 ? nullptr : scratch.shared;
    const xnn_status status = call.setup(call.op.get(), to);
    if (status != xnn_status_success) return check_xnn(status, node_);
  }
  return {};
}

Status XnnpackOperator::run_with(pthreadpool_t threads) {
  for (const OperatorCalls& call : calls_) {
    const xnn_status status = xnn_run_operator(call.op.get(), threads);
    if (status != xnn_status_success) return check_xnn(status, node_);
  }
  if (params_ != nullptr) repeat_last_params();
  return {};
}

// Versions of XNNPACK write fewer of them than the widest of their kernels read.
void XnnpackOperator::repeat_last_params() const {
  std::fill_n(params_ + rows_, kRowsBehind, params_[rows_ - 1]);
}

void XnnpackOperator::choose_sharing() {
  if (threads_ == nullptr || work_ >= kLeastShared) {
    sharing_ = Sharing::kAllThreads;
  } else if (time_of_work_ == 0) {
    sharing_ = Sharing::kUnknown;
  } else {
    const bool is_quick = time_of_work_ * static_cast<double>(work_) <= kQuickTime;
    sharing_ = is_quick ? Sharing::kOneThread : Sharing::kAllThreads;
  }
}

Status XnnpackOperator::run() {
  if (sharing_ == Sharing::kAllThreads) return run_with(threads_);
  if (sharing_ == Sharing::kOneThread) return run_with(nullptr);
  const int64_t begin = profile_clock();
  EDGEWISE_RETURN_IF_ERROR(run_with(nullptr));
  time_of_work_ = static_cast<double>(profile_clock() - begin) / static_cast<double>(work_);
  choose_sharing();
  return {};
}

std::string XnnpackOperator::name() const { return std::string("XNNPACK ") + calls_[0].name; }

}  // namespace edgewise::xnnpack
