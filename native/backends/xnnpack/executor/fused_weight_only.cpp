#include "backends/xnnpack/executor/fused_weight_only.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "backends/xnnpack/describe_weights.h"
#include "backends/xnnpack/executor/panels.h"
#include "backends/xnnpack/executor/parallel.h"

namespace edgewise::xnnpack {
namespace {

// Of a panel's floats, which stay in a core's second cache.
constexpr size_t kFloatBytes = 64 * 1024;
// Less is over before another thread is awake.
constexpr size_t kLeastBytes = 64 * 1024;
constexpr size_t kMostColumns = 32;  // of a panel
constexpr float kZeros[kMostColumns] = {};

DataType stored_type(const GraphValue& filter) {
  return filter.is_converted() ? filter.stored : filter.type;
}

WeightForm form_of(DataType type) {
  if (type == DataType::kFp16) return WeightForm::kHalves;
  return type == DataType::kQcint4 || type == DataType::kQbint4 ? WeightForm::kNibbles
                                                                : WeightForm::kBytes;
}

struct Packing {
  const GraphValue& filter;
  WeightOnlyPanel form;
  size_t columns;  // of a panel
  size_t scale_bytes;

  void scales(size_t first, size_t count, std::byte* to) const {
    if (scale_bytes == 0) return;
    const size_t blocks = divide_up(form.depth, form.block);
    for (size_t block = 0; block < blocks; ++block) {
      for (size_t j = 0; j < count; ++j) {
        const size_t from = (first + j) * blocks + block, at = block * columns + j;
        if (form.has_short_scales) {
          std::memcpy(to + at * sizeof(uint16_t), &filter.block_scales[from], sizeof(uint16_t));
        } else {
          std::memcpy(to + at * sizeof(float), &filter.channel_scales[from], sizeof(float));
        }
      }
    }
  }

  // Numbers, or pairs of nibbles, that follow each other in a column of the filter are `columns`
  // apart in the panel.
  void weights(size_t first, size_t count, std::byte* to) const {
    if (form.form == WeightForm::kHalves) return transpose<uint16_t>(first, count, form.depth, to);
    const bool is_pairs = form.form == WeightForm::kNibbles;
    transpose<uint8_t>(first, count, is_pairs ? form.depth / 2 : form.depth, to);
  }

  template <typename Number>
  void transpose(size_t first, size_t count, size_t numbers, std::byte* to) const {
    constexpr size_t kSize = sizeof(Number);
    const std::byte* from = filter.data.bytes.data() + first * numbers * kSize;
    constexpr size_t kAtOnce = 64;  // so that lines of the panel are written while they are cached
    for (size_t start = 0; start < numbers; start += kAtOnce) {
      const size_t end = std::min(start + kAtOnce, numbers);
      for (size_t j = 0; j < count; ++j) {
        for (size_t i = start; i < end; ++i) {
          std::memcpy(to + (i * columns + j) * kSize, from + (j * numbers + i) * kSize, kSize);
        }
      }
    }
  }
};

}  // namespace

bool has_narrow_weights(const GraphValue& filter) {
  switch (stored_type(filter)) {
    case DataType::kQcint8:
    case DataType::kQcint4:
    case DataType::kQbint8:
    case DataType::kQbint4:
      return true;
    case DataType::kFp16:
      return filter.is_converted();
    default:
      return false;
  }
}

const char* weight_only_rule(const Graph& graph, const LinearNodes& nodes,
                             const FloatKernels& kernels) {
  const GraphNode& node = graph.nodes[nodes.nodes[0]];
  const GraphValue& filter = graph.values[nodes.filter];
  const DataType type = stored_type(filter);
  const bool is_channels = type == DataType::kQcint8 || type == DataType::kQcint4;
  const char* const rule =
      "constant weights [N, K] and bias, of 4 bits even numbers for each result";
  if (node.flags != 0 || !filter.is_constant() || filter.shape.rank != 2 ||
      filter.shape.elements() == 0 || (is_channels && filter.channel_dim != 0)) {
    return rule;
  }
  if (form_of(type) == WeightForm::kNibbles &&
      (filter.shape[1] % 2 != 0 || filter.zero_point != 8 ||
       (!is_channels && filter.block_size % 2 != 0))) {
    return rule;
  }
  if (nodes.bias != kNone && (!graph.values[nodes.bias].is_constant() ||
                              graph.values[nodes.bias].type != DataType::kFp32)) {
    return rule;
  }
  // XNNPACK, where it can, does not turn them into floats before.
  if (!filter.is_converted() && !kernels.gemm_pays) {
    return "cores that start instructions out of order";
  }
  return nullptr;
}

FusedWeightOnly::FusedWeightOnly(const Graph& graph, const LinearNodes& nodes,
                                 const FloatKernels& kernels, ProgramState& state)
    : FusedKernel("weight-only GEMM", kernels, state, {nodes.input, nodes.residual},
                  {nodes.output}),
      nodes_(nodes),
      weight_only_(*kernels.weight_only) {
  const GraphValue& filter = graph.values[nodes.filter];
  const DataType type = stored_type(filter);
  columns_ = filter.shape[0];
  form_.depth = filter.shape[1];
  form_.block = filter.block_size == 0 ? form_.depth : filter.block_size;
  form_.form = form_of(type);
  form_.has_short_scales = type == DataType::kQbint4;
  if (form_.form != WeightForm::kHalves) {
    scale_bytes_ = divide_up(form_.depth, form_.block) * kernels.columns *
                   (form_.has_short_scales ? sizeof(uint16_t) : sizeof(float));
  }
  panel_bytes_ = scale_bytes_ + form_.depth * bits_of(type) / 8 * kernels.columns;
}

Result<std::unique_ptr<Step>> FusedWeightOnly::make(const Graph& graph, const LinearNodes& nodes,
                                                    const FloatKernels& kernels,
                                                    ProgramState& state) {
  std::unique_ptr<FusedWeightOnly> step(new FusedWeightOnly(graph, nodes, kernels, state));
  const GraphValue& filter = graph.values[nodes.filter];
  const size_t columns = kernels.columns, panels = step->panels(), all = step->columns_;
  const std::string scales = scales_text(filter, state.weights());
  const std::string form =
      weights_form("weight only", kernels.name, {step->form_.depth, all, step->form_.block}) +
      scales;
  const size_t bytes = panels * step->panel_bytes_;
  auto weights = FusedKernelWeights::make(
      graph, nodes.filter, nodes.bias, bytes / sizeof(float) + panels * columns,
      scales.empty() ? "" : form, state,
      [&](const float*, const float* bias, float* packed) {
        auto* const to = reinterpret_cast<std::byte*>(packed);
        const Packing packing{filter, step->form_, columns, step->scale_bytes_};
        parallel_for(state.threadpool(), panels, [&](size_t panel, size_t) {
          const size_t first = panel * columns, count = std::min(columns, all - first);
          std::byte* const at = to + panel * step->panel_bytes_;
          if (count < columns) std::memset(at, 0, step->panel_bytes_);
          packing.scales(first, count, at);
          packing.weights(first, count, at + step->scale_bytes_);
        });
        float* end = packed + bytes / sizeof(float);
        std::fill_n(end, panels * columns, 0.0f);
        if (bias == nullptr) return;
        // XNNPACK's kernels multiply biases by the weights' scales, so that files have them
        // divided.
        const bool is_divided = !filter.is_converted();
        for (size_t j = 0; j < all; ++j) {
          end[j] = is_divided ? bias[j] * filter.channel_scales[j] : bias[j];
        }
      },
      FusedKernelWeights::Filter::kAsStored);
  if (!weights.ok()) return weights.status();
  step->weights_ = std::move(*weights);
  return std::unique_ptr<Step>(std::move(step));
}

size_t FusedWeightOnly::panels() const { return divide_up(columns_, kernels_.columns); }

WeightOnlyPanel FusedWeightOnly::panel_at(size_t panel) const {
  WeightOnlyPanel result = form_;
  const auto* start = reinterpret_cast<const std::byte*>(weights_.data()) + panel * panel_bytes_;
  if (scale_bytes_ > 0) result.scales = start;
  result.weights = start + scale_bytes_;
  return result;
}

const float* FusedWeightOnly::bias_of(size_t panel) const {
  return weights_.data() + panels() * panel_bytes_ / sizeof(float) + panel * kernels_.columns;
}

Status FusedWeightOnly::reshape(const std::vector<Shape>& shapes) {
  rows_ = shapes[nodes_.input].elements() / form_.depth;
  return {};
}

size_t FusedWeightOnly::thread_scratch_bytes() const { return has_few_rows() ? 0 : kFloatBytes; }

Status FusedWeightOnly::set_pointers(std::span<void* const> addresses, const Scratch& scratch) {
  input_ = static_cast<const float*>(addresses[nodes_.input]);
  output_ = static_cast<float*>(addresses[nodes_.output]);
  if (nodes_.residual != kNone) residual_ = static_cast<const float*>(addresses[nodes_.residual]);
  scratch_ = scratch;
  return {};
}

void FusedWeightOnly::run_few(size_t panel) const {
  const size_t first = panel * kernels_.columns;
  weight_only_.multiply(panel_at(panel),
                        {.rows = rows_,
                         .a = input_,
                         .a_stride = form_.depth,
                         .columns = std::min(kernels_.columns, columns_ - first),
                         .bias = bias_of(panel),
                         .residual = residual_ == nullptr ? nullptr : residual_ + first,
                         .c = output_ + first,
                         .c_stride = columns_,
                         .min = nodes_.min,
                         .max = nodes_.max});
}

// A part of the panel after the other: each adds to what the ones before have stored.
void FusedWeightOnly::run_many(size_t panel, size_t first_row, size_t rows, float* floats) const {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const size_t columns = kernels_.columns, first = panel * columns;
  const size_t at = first_row * columns_ + first;
  const size_t most = kFloatBytes / sizeof(float) / columns;
  const WeightOnlyPanel weights = panel_at(panel);
  for (size_t start = 0; start < form_.depth; start += most) {
    const size_t depth = std::min(most, form_.depth - start);
    const bool is_last = start + depth == form_.depth;
    weight_only_.dequantize(weights, start, depth, floats);
    float* const c = output_ + at;
    const GemmTile tile{.rows = rows,
                        .depth = depth,
                        .a = input_ + first_row * form_.depth + start,
                        .a_stride = form_.depth,
                        .panel = floats,
                        .panel_stride = columns,
                        .columns = std::min(columns, columns_ - first),
                        .c = c,
                        .c_stride = columns_,
                        .ahead = reinterpret_cast<const char*>(floats)};
    Finish finish{.bias = bias_of(panel),
                  .residual = residual_ == nullptr ? nullptr : residual_ + at,
                  .residual_stride = columns_,
                  .min = is_last ? nodes_.min : -kInfinity,
                  .max = is_last ? nodes_.max : kInfinity};
    if (start > 0) {
      finish.bias = kZeros;
      finish.residual = c;
    }
    kernels_.multiply(tile, &finish);
  }
}

Status FusedWeightOnly::run() {
  const size_t panels = this->panels();
  if (rows_ == 0) return {};
  const bool is_short = has_few_rows() && panels * panel_bytes_ < kLeastBytes;
  const pthreadpool_t pool = is_short ? nullptr : threads_;
  if (has_few_rows()) {
    parallel_for(pool, panels, [&](size_t panel, size_t) { run_few(panel); });
    return {};
  }
  const size_t tiles = divide_up(rows_, kernels_.rows);
  const size_t chunks = std::min(tiles, divide_up(8 * threads_of(pool), panels));
  parallel_for(pool, panels * chunks, [&](size_t item, size_t thread) {
    const size_t chunk = item % chunks, first = part_start(rows_, chunks, chunk);
    run_many(item / chunks, first, part_start(rows_, chunks, chunk + 1) - first,
             scratch_.of_thread<float>(thread));
  });
  return {};
}

}  // namespace edgewise::xnnpack
