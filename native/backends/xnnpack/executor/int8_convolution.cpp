#include "backends/xnnpack/executor/int8_convolution.h"

#include <algorithm>
#include <cmath>

#include "backends/xnnpack/executor/parallel.h"

namespace edgewise::xnnpack {
namespace {

// What of a core's first cache is for rows of the input.
constexpr size_t kFirstCache = 16 * 1024;
// Weights up to this size stay in a core's cache while rows pass by.
constexpr size_t kCachedWeights = 256 * 1024;
constexpr size_t kFewChannels = 4;

// As XNNPACK has it: multipliers have 21 bits, of which the larger one uses all.
Int8Sum sum_of(const Graph& graph, const GraphNode& node, uint32_t a) {
  const uint32_t b = node.inputs[0] == a ? node.inputs[1] : node.inputs[0];
  const GraphValue &out = graph.values[node.outputs[0]], &left = graph.values[a],
                   &right = graph.values[b];
  const float a_scale = left.scale / out.scale, b_scale = right.scale / out.scale;
  const int shift = 20 - std::ilogb(std::max(a_scale, b_scale));
  Int8Sum sum = {.a_multiplier = static_cast<int32_t>(std::lrint(std::ldexp(a_scale, shift))),
                 .b_multiplier = static_cast<int32_t>(std::lrint(std::ldexp(b_scale, shift))),
                 .shift = shift,
                 .range = int8_range(node, out)};
  sum.bias =
      (1 << (shift - 1)) - sum.a_multiplier * left.zero_point - sum.b_multiplier * right.zero_point;
  return sum;
}

// Rows of a filter's window; a segment is one of them.
size_t segments_of(const GraphNode& node) {
  return node.kind == NodeKind::kFullyConnected ? 1 : node.window.kernel[0];
}

}  // namespace

const char* int8_convolution_rule(const Graph& graph, const std::vector<Shape>& shapes,
                                  const GraphNode& node, const Int8Kernels& kernels) {
  const Window& w = node.window;
  const GraphValue& filter = graph.values[node.inputs[1]];
  if (!has_int8_channels(graph, node, 0)) return kInt8ChannelsRule;
  const size_t columns = filter.shape[0], depth = filter.shape.elements() / columns;
  if (node.kind == NodeKind::kConv2d &&
      (w.groups != 1 || w.dilation[0] != 1 || w.dilation[1] != 1)) {
    return "a convolution without groups and dilation";
  }
  const size_t rows = shapes[node.outputs[0]].elements() / columns;
  const size_t run = depth / segments_of(node);
  const bool has_few = node.kind == NodeKind::kConv2d && w.group_inputs <= kFewChannels;
  if (run < (has_few ? kernels.least_run : kernels.least_depth)) return kernels.depth_rule;
  if (kernels.needs_full_panels && round_up(columns, kInt8Columns) * 8 > columns * 9) {
    return "channels that fill the kernel's panels to eight ninths";
  }
  if (rows < kernels.rows) return "as many rows as the kernel computes at once";
  return nullptr;
}

std::vector<size_t> Int8ConvolutionNodes::nodes() const {
  if (sum == Readers::kNoNode) return {convolution};
  return {convolution, sum};
}

Int8ConvolutionNodes int8_convolution_nodes(const Graph& graph, const std::vector<Shape>& shapes,
                                            const Readers& readers,
                                            const std::vector<bool>& is_taken, size_t convolution,
                                            const Int8Kernels& kernels) {
  const uint32_t result = graph.nodes[convolution].outputs[0];
  Int8ConvolutionNodes found{.convolution = convolution, .result = result, .output = result};
  const size_t next = readers.sole(graph, result);
  if (kernels.add == nullptr || next == Readers::kNoNode || is_taken[next]) return found;
  const GraphNode& sum = graph.nodes[next];
  if (sum.kind != NodeKind::kAdd || sum.flags != 0) return found;
  const uint32_t other = sum.inputs[0] == result ? sum.inputs[1] : sum.inputs[0];
  const GraphValue& value = graph.values[other];
  if (other == result || value.is_constant() || value.type != DataType::kQint8 ||
      !(shapes[other] == shapes[result]) || graph.values[sum.outputs[0]].type != DataType::kQint8) {
    return found;
  }
  found.sum = next;
  found.residual = other;
  found.output = sum.outputs[0];
  return found;
}

Int8Convolution::Int8Convolution(const Graph& graph, const Int8ConvolutionNodes& nodes,
                                 const Int8Kernels& kernels, ProgramState& state)
    : FusedKernelOf("Int8Convolution", kernels, state,
                    {graph.nodes[nodes.convolution].inputs[0], nodes.residual}, {nodes.output}),
      window_(graph.nodes[nodes.convolution].kind == NodeKind::kFullyConnected
                  ? Window()
                  : graph.nodes[nodes.convolution].window),
      image_(window_),
      channels_(graph, graph.nodes[nodes.convolution], kernels.offset),
      result_value_(nodes.result),
      residual_value_(nodes.residual) {
  const GraphNode& node = graph.nodes[nodes.convolution];
  if (nodes.residual != kNone) sum_ = sum_of(graph, graph.nodes[nodes.sum], node.outputs[0]);
  const size_t run =
      graph.values[node.inputs[1]].shape.elements() / channels_.count / window_.kernel[0];
  depth_ = round_up(run, kernels.step);
}

Result<std::unique_ptr<Step>> Int8Convolution::make(const Graph& graph,
                                                    const Int8ConvolutionNodes& nodes,
                                                    const Int8Kernels& kernels,
                                                    ProgramState& state) {
  std::unique_ptr<Int8Convolution> step(new Int8Convolution(graph, nodes, kernels, state));
  const GraphNode& node = graph.nodes[nodes.convolution];
  const size_t columns = step->channels_.count, segments = step->window_.kernel[0],
               depth = step->depth_;
  const GraphValue& filter = graph.values[node.inputs[1]];
  const size_t run = filter.shape.elements() / columns / segments;
  const size_t at_once = kernels.step;
  const size_t bytes = step->channels_.bias.size() * segments * depth;
  const std::string form = weights_form("int8 gemm", kernels.name, {segments, run, columns});
  auto packed = FusedKernelWeights::make(
      graph, node.inputs[1], kNone, bytes / sizeof(float), form, state,
      [&](const float* filter_data, const float*, float* packed_data) {
        const auto* from = reinterpret_cast<const int8_t*>(filter_data);
        auto* to = reinterpret_cast<int8_t*>(packed_data);
        std::fill_n(to, bytes, int8_t{0});
        for (size_t column = 0; column < columns; ++column) {
          int8_t* panel = to + column / kInt8Columns * kInt8Columns * segments * depth +
                          column % kInt8Columns * at_once;
          for (size_t segment = 0; segment < segments; ++segment) {
            for (size_t i = 0; i < run; ++i) {
              const size_t step_of = (segment * depth + i) / at_once;
              panel[step_of * kInt8Columns * at_once + i % at_once] =
                  from[(column * segments + segment) * run + i];
            }
          }
        }
      });
  if (!packed.ok()) return packed.status();
  step->weights_ = std::move(*packed);
  return std::unique_ptr<Step>(std::move(step));
}

Status Int8Convolution::reshape(const std::vector<Shape>& shapes) {
  Shape in = shapes[reads()[0]], out = shapes[writes()[0]];
  if (in.rank != 4 || out.rank != 4) {  // rows are as an image of one row
    const size_t rows = in.elements() / in.last();
    in = Shape{.dims = {1, 1, rows, in.last()}, .rank = 4};
    out = Shape{.dims = {1, 1, rows, channels_.count}, .rank = 4};
  }
  images_ = in[0];
  out_height_ = out[1];
  out_width_ = out[2];
  // What is beyond a segment is multiplied with 0, but must be there.
  const size_t run = in[3] * window_.kernel[1];
  image_.reshape(in, out, kernels_.step,
                 run % kernels_.step != 0 || (converts() && !window_.is_pointwise()));
  return {};
}

size_t Int8Convolution::scratch_bytes() const {
  if (!is_gemm()) return image_.copied() * kernels_.number_bytes;
  return converts() && !runs_by_rows() ? rows() * row_bytes() : 0;
}

size_t Int8Convolution::result_bytes() const {
  return residual_value_ == kNone ? 0 : round_up(rows_of_item() * channels_.count, kCacheLine);
}

size_t Int8Convolution::thread_scratch_bytes() const {
  if (!is_gemm() || !runs_by_rows()) return 0;
  return result_bytes() + (converts() ? rows_of_item() * row_bytes() : 0);
}

Status Int8Convolution::set_pointers(std::span<void* const> addresses, const Scratch& scratch) {
  input_ = static_cast<const int8_t*>(addresses[reads()[0]]);
  output_ = static_cast<int8_t*>(addresses[writes()[0]]);
  if (residual_value_ != kNone) residual_ = static_cast<const int8_t*>(addresses[residual_value_]);
  scratch_ = scratch;
  return {};
}

bool Int8Convolution::is_gemm() const { return window_.is_pointwise() && !image_.copies(); }

bool Int8Convolution::is_cached() const {
  return depth_ * window_.kernel[0] * channels_.count <= kCachedWeights;
}

void Int8Convolution::run_panel(size_t panel, Int8Tile tile, int8_t* results) const {
  const size_t first = panel * kernels_.columns;
  tile.depth = depth_;
  tile.segments = window_.kernel[0];
  tile.segment_stride = image_.row_size() * kernels_.number_bytes;
  tile.panel =
      reinterpret_cast<const int8_t*>(weights_.data()) + first * window_.kernel[0] * depth_;
  tile.panel_stride = kInt8Columns * window_.kernel[0] * depth_;
  tile.bias = channels_.bias.data() + first;
  tile.scales = channels_.scales.data() + first;
  tile.columns = std::min(kernels_.columns, channels_.count - first);
  tile.c = results + first;
  tile.c_stride = channels_.count;
  kernels_.multiply(tile, channels_.range);
}

void Int8Convolution::add_residual(size_t first_row, size_t count, const int8_t* results) const {
  kernels_.add(results, residual_ + first_row * channels_.count, count * channels_.count, sum_,
               output_row(first_row));
}

const std::byte* Int8Convolution::read_rows(size_t first, size_t count, std::byte* copy) const {
  const int8_t* input = input_ + first * image_.channels();
  if (!converts()) return reinterpret_cast<const std::byte*>(input);
  kernels_.convert(input, count * image_.channels(), copy);
  return copy;
}

bool Int8Convolution::runs_by_rows() const {
  return is_cached() && kernels_.rows * row_bytes() <= kFirstCache;
}

size_t Int8Convolution::rows_of_item() const {
  // Results that wait for their residual are read soon, too, but only once.
  const size_t bytes = row_bytes() + (residual_value_ == kNone ? 0 : channels_.count / 4);
  const size_t fitting = kFirstCache / bytes / kernels_.rows * kernels_.rows;
  return std::min(std::max(kernels_.rows, fitting), divide_up(rows(), threads_of(threads_)));
}

// All rows are one after the other, in the input as in the output.
void Int8Convolution::run_all() const {
  const size_t rows = this->rows();
  if (rows == 0) return;
  const size_t items = divide_up(rows, rows_of_item());
  const size_t stride = row_bytes();
  const auto for_items = [&](auto body) {
    parallel_for(threads_, items, [&](size_t item, size_t thread) {
      const size_t first = part_start(rows, items, item);
      body(first, part_start(rows, items, item + 1) - first, thread);
    });
  };
  if (runs_by_rows()) {
    for_items([&](size_t first, size_t count, size_t thread) {
      auto* own = scratch_.of_thread<std::byte>(thread);
      const std::byte* a = read_rows(first, count, own + result_bytes());
      auto* results = residual_ == nullptr ? output_row(first) : reinterpret_cast<int8_t*>(own);
      for (size_t panel = 0; panel < panels(); ++panel) {
        run_panel(panel, {.rows = count, .a = a, .a_stride = stride}, results);
      }
      if (residual_ != nullptr) add_residual(first, count, results);
    });
    return;
  }
  // Each weight is read by one thread only.
  if (converts()) {
    for_items([&](size_t first, size_t count, size_t) {
      read_rows(first, count, scratch_.shared + first * stride);
    });
  }
  const std::byte* a = converts() ? scratch_.shared : reinterpret_cast<const std::byte*>(input_);
  const size_t parts = divide_up(8 * threads_of(threads_), panels());
  parallel_for(threads_, panels() * parts, [&](size_t item, size_t) {
    const size_t part = item % parts, first = part_start(rows, parts, part);
    const size_t count = part_start(rows, parts, part + 1) - first;
    if (count == 0) return;
    run_panel(item / parts, {.rows = count, .a = a + first * stride, .a_stride = stride},
              output_row(first));
  });
  if (residual_ == nullptr) return;
  for_items(
      [&](size_t first, size_t count, size_t) { add_residual(first, count, output_row(first)); });
}

void Int8Convolution::run_image(const int8_t* image, size_t first_row) const {
  const std::byte* from = scratch_.shared;
  const auto write_copy = [&](auto zero) {
    using Number = decltype(zero);
    image_.write_copy(image, zero, reinterpret_cast<Number*>(scratch_.shared), threads_,
                      [&](const int8_t* numbers, size_t count, Number* to) {
                        kernels_.convert(numbers, count, reinterpret_cast<std::byte*>(to));
                      });
  };
  const int zero = channels_.zero + kernels_.offset;
  if (kernels_.number_bytes == sizeof(int16_t)) {
    write_copy(static_cast<int16_t>(zero));
  } else if (converts()) {
    write_copy(static_cast<uint8_t>(zero));
  } else {
    from = reinterpret_cast<const std::byte*>(
        image_.read(image, channels_.zero, reinterpret_cast<int8_t*>(scratch_.shared), threads_));
  }
  parallel_for_panels(threads_, panels(), out_height_, is_cached(), [&](size_t panel, size_t y) {
    run_panel(panel,
              {.rows = out_width_,
               .a = from + y * window_.stride[0] * image_.row_size() * kernels_.number_bytes,
               .a_stride = window_.stride[1] * image_.channels() * kernels_.number_bytes},
              output_row(first_row + y * out_width_));
  });
  if (residual_ == nullptr) return;
  parallel_for(threads_, out_height_, [&](size_t y, size_t) {
    const size_t row = first_row + y * out_width_;
    add_residual(row, out_width_, output_row(row));
  });
}

Status Int8Convolution::run() {
  if (out_width_ == 0) return {};
  if (is_gemm()) {
    run_all();
    return {};
  }
  for (size_t image = 0; image < images_; ++image) {
    run_image(input_ + image * image_.elements(), image * out_height_ * out_width_);
  }
  return {};
}

}  // namespace edgewise::xnnpack
