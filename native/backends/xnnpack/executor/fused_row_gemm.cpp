#include "backends/xnnpack/executor/fused_row_gemm.h"

#include <algorithm>

#include "backends/xnnpack/describe_weights.h"
#include "backends/xnnpack/executor/parallel.h"
#include "backends/xnnpack/non_temporal_loads.h"

namespace edgewise::xnnpack {
namespace {

// Less is over before another thread is awake: bytes of weights for one row, products of several.
constexpr size_t kLeastBytes = 64 * 1024;
constexpr size_t kLeastProducts = 512 * 1024;

// Weights that a core's own cache holds: all of them for some rows after the other.
constexpr size_t kSmallWeights = 256 * 1024;
constexpr size_t kMostRows = 24;  // of a part
constexpr size_t kLeastRows = 4;

// Null if there are none for `node`.
const RowGemmKernels* kernels_of(const Graph& graph, const GraphNode& node) {
  if (node.kind != NodeKind::kFullyConnected || node.flags != 0) return nullptr;
  const GraphValue& filter = graph.values[node.inputs[1]];
  const uint32_t bias = node.inputs[2];
  const bool fits = filter.is_constant() &&
                    (bias == kNone || (graph.values[bias].is_constant() &&
                                       graph.values[bias].type == DataType::kFp32)) &&
                    graph.values[node.outputs[0]].type == DataType::kFp32;
  const RowGemmKernels* kernels = fits ? row_gemm_kernels(filter.type) : nullptr;
  return kernels != nullptr && kernels->takes(filter) ? kernels : nullptr;
}

}  // namespace

std::optional<RowGemmNodes> row_gemm_nodes(const Graph& graph, const Readers& readers,
                                           size_t node) {
  const GraphNode& convert = graph.nodes[node];
  if (convert.kind != NodeKind::kConvert) return {};
  const GraphValue& quantized = graph.values[convert.outputs[0]];
  const uint32_t input = convert.inputs[0];
  if (quantized.type != DataType::kQdint8 || quantized.nonbatch_dims != 1 ||
      graph.values[input].type != DataType::kFp32 || graph.values[input].is_constant()) {
    return {};
  }
  RowGemmNodes found{.nodes = {node}, .input = input, .outputs = {}};
  for (size_t reader : readers.nodes[convert.outputs[0]]) {
    const RowGemmKernels* kernels = kernels_of(graph, graph.nodes[reader]);
    if (kernels == nullptr || (found.kernels != nullptr && kernels != found.kernels)) return {};
    found.kernels = kernels;
    found.nodes.push_back(reader);
    found.outputs.push_back(graph.nodes[reader].outputs[0]);
  }
  if (found.outputs.empty()) return {};
  return found;
}

Result<std::unique_ptr<Step>> FusedRowGemm::make(const Graph& graph, const RowGemmNodes& nodes,
                                                 const RowGemmKernels& kernels,
                                                 ProgramState& state) {
  std::unique_ptr<FusedRowGemm> step(new FusedRowGemm(nodes, kernels, state));
  size_t panels_before = 0;
  for (size_t i = 1; i < nodes.nodes.size(); ++i) {
    const GraphNode& node = graph.nodes[nodes.nodes[i]];
    const GraphValue& filter = graph.values[node.inputs[1]];
    const size_t depth = step->depth_ = filter.shape[1];
    const size_t panels = divide_up(filter.shape[0], kRowGemmColumns);
    Gemm gemm{.weights = {},
              .type = filter.type,
              .block = filter.block_size,
              .columns = filter.shape[0],
              .panel_bytes = kernels.panel_bytes(filter),
              .end = panels_before += panels,
              .min = node.min,
              .max = node.max};
    const std::string scales = scales_text(filter, state.weights());
    const std::string form =
        weights_form("row gemm", kernels.name,
                     {static_cast<size_t>(gemm.type), gemm.block, depth, gemm.columns}) +
        scales;
    auto weights = FusedKernelWeights::make(
        graph, node.inputs[1], node.inputs[2], panels * gemm.panel_bytes / sizeof(float),
        scales.empty() ? "" : form, state,
        [&](const float*, const float* bias, float* packed) {
          parallel_for(state.threadpool(), panels, [&](size_t panel, size_t) {
            kernels.pack(filter, bias, panel * kRowGemmColumns,
                         reinterpret_cast<std::byte*>(packed) + panel * gemm.panel_bytes);
          });
        },
        FusedKernelWeights::Filter::kAsStored);
    if (!weights.ok()) return weights.status();
    gemm.weights = std::move(*weights);
    step->all_bytes_ += panels * gemm.panel_bytes;
    step->gemms_.push_back(std::move(gemm));
  }
  return std::unique_ptr<Step>(std::move(step));
}

// By panels, each of which meets all rows, so that weights are read once; but by rows where weights
// are small, or their panels fewer than the threads.
Status FusedRowGemm::reshape(const std::vector<Shape>& shapes) {
  rows_ = shapes[reads()[0]].elements() / depth_;
  const size_t threads = threads_of(threads_);
  const bool is_by_rows = all_bytes_ <= kSmallWeights || gemms_.back().end < threads;
  parts_ = !is_by_rows ? 1
                       : std::max(divide_up(rows_, kMostRows),
                                  std::min(threads, divide_up(rows_, kLeastRows)));
  return {};
}

size_t FusedRowGemm::part_bytes() const {
  const size_t bytes = kernels_.rows_bytes(divide_up(rows_, std::max<size_t>(parts_, 1)), depth_);
  return round_up(bytes, Scratch::kAlignment);
}

size_t FusedRowGemm::scratch_bytes() const { return parts_ > 1 ? 0 : part_bytes(); }

size_t FusedRowGemm::thread_scratch_bytes() const { return parts_ > 1 ? part_bytes() : 0; }

Status FusedRowGemm::set_pointers(std::span<void* const> addresses, const Scratch& scratch) {
  input_ = static_cast<const float*>(addresses[reads()[0]]);
  for (size_t i = 0; i < gemms_.size(); ++i) {
    gemms_[i].output = static_cast<float*>(addresses[writes()[i]]);
  }
  scratch_ = scratch;
  return {};
}

void FusedRowGemm::quantize(const Part& part, size_t row) const {
  kernels_.quantize(input_ + (part.first + row) * depth_, part.count, depth_, row, part.quantized);
}

void FusedRowGemm::multiply(const Part& part, size_t panel, bool is_cached) const {
  const auto gemm = std::ranges::upper_bound(gemms_, panel, {}, &Gemm::end);
  if (gemm != gemms_.begin()) panel -= std::prev(gemm)->end;
  const size_t column = panel * kRowGemmColumns;
  kernels_.multiply({.weights = gemm->type,
                     .rows = part.count,
                     .depth = depth_,
                     .block = gemm->block,
                     .a = part.quantized,
                     .panel = reinterpret_cast<const std::byte*>(gemm->weights.data()) +
                              panel * gemm->panel_bytes,
                     .columns = std::min(kRowGemmColumns, gemm->columns - column),
                     .c = gemm->output + part.first * gemm->columns + column,
                     .c_stride = gemm->columns,
                     .min = gemm->min,
                     .max = gemm->max,
                     .is_cached = is_cached});
}

Status FusedRowGemm::run() {
  if (rows_ == 0) return {};
  const size_t panels = gemms_.back().end;
  const bool is_short = rows_ == 1 ? all_bytes_ < kLeastBytes
                                   : panels * kRowGemmColumns * depth_ * rows_ < kLeastProducts;
  const pthreadpool_t pool = is_short ? nullptr : threads_;
  const bool is_cached = !NonTemporalLoads::are_on();
  if (parts_ > 1) {
    parallel_for(pool, parts_, [&](size_t index, size_t thread) {
      const size_t first = part_start(rows_, parts_, index);
      const Part part = {.first = first,
                         .count = part_start(rows_, parts_, index + 1) - first,
                         .quantized = scratch_.of_thread<std::byte>(thread)};
      for (size_t row = 0; row < part.count; ++row) quantize(part, row);
      for (size_t panel = 0; panel < panels; ++panel) multiply(part, panel, is_cached);
    });
    return {};
  }
  const Part all = {.first = 0, .count = rows_, .quantized = scratch_.shared};
  parallel_for(rows_ == 1 ? nullptr : pool, rows_, [&](size_t row, size_t) { quantize(all, row); });
  parallel_for(pool, panels, [&](size_t panel, size_t) { multiply(all, panel, is_cached); });
  return {};
}

}  // namespace edgewise::xnnpack
