#include "backends/xnnpack/executor/fused_qb4_gemm.h"

#include <algorithm>

#include "backends/xnnpack/describe_weights.h"
#include "backends/xnnpack/executor/parallel.h"
#include "backends/xnnpack/non_temporal_loads.h"

namespace edgewise::xnnpack {
namespace {

// Less is over before another thread is awake.
constexpr size_t kLeastShared = 64 * 1024;
constexpr size_t kAlignment = 64;

bool is_qb4_gemm(const Graph& graph, const GraphNode& node, const Qb4Kernels& kernels) {
  if (node.kind != NodeKind::kFullyConnected || node.flags != 0) return false;
  const GraphValue& filter = graph.values[node.inputs[1]];
  const uint32_t bias = node.inputs[2];
  return filter.type == DataType::kQbint4 && filter.is_constant() &&
         filter.block_size % kernels.step == 0 &&
         (bias == kNone ||
          (graph.values[bias].is_constant() && graph.values[bias].type == DataType::kFp32)) &&
         graph.values[node.outputs[0]].type == DataType::kFp32;
}

}  // namespace

std::optional<Qb4Nodes> qb4_nodes(const Graph& graph, const Readers& readers, size_t node,
                                  const Qb4Kernels& kernels) {
  const GraphNode& convert = graph.nodes[node];
  if (convert.kind != NodeKind::kConvert) return {};
  const GraphValue& quantized = graph.values[convert.outputs[0]];
  const uint32_t input = convert.inputs[0];
  if (quantized.type != DataType::kQdint8 || quantized.nonbatch_dims != 1 ||
      graph.values[input].type != DataType::kFp32 || graph.values[input].is_constant()) {
    return {};
  }
  Qb4Nodes found{.nodes = {node}, .input = input, .outputs = {}};
  for (size_t reader : readers.nodes[convert.outputs[0]]) {
    if (!is_qb4_gemm(graph, graph.nodes[reader], kernels)) return {};
    found.nodes.push_back(reader);
    found.outputs.push_back(graph.nodes[reader].outputs[0]);
  }
  if (found.outputs.empty()) return {};
  return found;
}

Result<std::unique_ptr<Step>> FusedQb4Gemm::make(const Graph& graph, const Qb4Nodes& nodes,
                                                 const Qb4Kernels& kernels, ProgramState& state) {
  std::unique_ptr<FusedQb4Gemm> step(new FusedQb4Gemm(nodes, kernels, state));
  size_t panels_before = 0;
  for (size_t i = 1; i < nodes.nodes.size(); ++i) {
    const GraphNode& node = graph.nodes[nodes.nodes[i]];
    const GraphValue& filter = graph.values[node.inputs[1]];
    const size_t depth = step->depth_ = filter.shape[1];
    const size_t panels = divide_up(filter.shape[0], kQb4Columns);
    Gemm gemm{.weights = {},
              .block = filter.block_size,
              .columns = filter.shape[0],
              .panel_bytes = kernels.panel_bytes(depth, filter.block_size),
              .end = panels_before += panels,
              .min = node.min,
              .max = node.max};
    const std::string scales = scales_text(filter, state.weights());
    const std::string form = std::string("qb4 gemm ") + kernels.name + " " +
                             std::to_string(gemm.block) + " " + std::to_string(depth) + " " +
                             std::to_string(gemm.columns) + " " + scales;
    auto weights = FusedKernelWeights::make(
        graph, node.inputs[1], node.inputs[2], panels * gemm.panel_bytes / sizeof(float),
        scales.empty() ? "" : form, state, [&](const float*, const float* bias, float* packed) {
          parallel_for(state.threadpool(), panels, [&](size_t panel, size_t) {
            kernels.pack(filter, bias, panel * kQb4Columns,
                         reinterpret_cast<std::byte*>(packed) + panel * gemm.panel_bytes);
          });
        });
    if (!weights.ok()) return weights.status();
    gemm.weights = std::move(*weights);
    step->all_bytes_ += panels * gemm.panel_bytes;
    step->gemms_.push_back(std::move(gemm));
  }
  return std::unique_ptr<Step>(std::move(step));
}

Status FusedQb4Gemm::reshape(const std::vector<Shape>& shapes) {
  rows_ = shapes[reads()[0]].elements() / depth_;
  return {};
}

size_t FusedQb4Gemm::scratch_bytes() const {
  return kAlignment + kernels_.rows_bytes(rows_, depth_);
}

Status FusedQb4Gemm::set_pointers(std::span<void* const> addresses, std::byte* scratch) {
  input_ = static_cast<const float*>(addresses[reads()[0]]);
  for (size_t i = 0; i < gemms_.size(); ++i) {
    gemms_[i].output = static_cast<float*>(addresses[writes()[i]]);
  }
  const auto address = reinterpret_cast<uintptr_t>(scratch);
  quantized_ = scratch + (divide_up(address, kAlignment) * kAlignment - address);
  return {};
}

void FusedQb4Gemm::run_panel(const Gemm& gemm, size_t panel, bool is_cached) const {
  const size_t first = panel * kQb4Columns;
  kernels_.multiply(
      {.rows = rows_,
       .depth = depth_,
       .block = gemm.block,
       .a = quantized_,
       .panel = reinterpret_cast<const std::byte*>(gemm.weights.data()) + panel * gemm.panel_bytes,
       .columns = std::min(kQb4Columns, gemm.columns - first),
       .c = gemm.output + first,
       .c_stride = gemm.columns,
       .min = gemm.min,
       .max = gemm.max,
       .is_cached = is_cached});
}

Status FusedQb4Gemm::run() {
  if (rows_ == 0) return {};
  const pthreadpool_t pool = all_bytes_ * rows_ < kLeastShared ? nullptr : threads_;
  parallel_for(rows_ == 1 ? nullptr : pool, rows_, [&](size_t row, size_t) {
    kernels_.quantize(input_ + row * depth_, rows_, depth_, row, quantized_);
  });
  const bool is_cached = !NonTemporalLoads::are_on();
  parallel_for(pool, gemms_.back().end, [&](size_t panel, size_t) {
    const auto gemm = std::ranges::upper_bound(gemms_, panel, {}, &Gemm::end);
    const size_t before = gemm == gemms_.begin() ? 0 : std::prev(gemm)->end;
    run_panel(*gemm, panel - before, is_cached);
  });
  return {};
}

}  // namespace edgewise::xnnpack
