#include "backends/xnnpack/executor/fused_convolution.h"

#include <algorithm>

#include "backends/xnnpack/executor/panels.h"
#include "backends/xnnpack/executor/parallel.h"

namespace edgewise::xnnpack {
namespace {

// A window's row of fewer floats has hardly a whole vector.
constexpr size_t kLeastRun = 6;
// With no more, XNNPACK's loop over the channels of a tap is short.
constexpr size_t kFewChannels = 4;

}  // namespace

const char* convolution_rule(const Graph& graph, const std::vector<Shape>& shapes,
                             const LinearNodes& nodes, const FloatKernels& kernels) {
  const GraphNode& node = graph.nodes[nodes.nodes[0]];
  const Window& w = node.window;
  if (node.kind != NodeKind::kConv2d || node.flags != 0 || w.groups != 1 || w.dilation[0] != 1 ||
      w.dilation[1] != 1) {
    return "a convolution without groups and dilation";
  }
  if (!kernels.gemm_pays && w.group_inputs > kFewChannels) {
    return "cores that start instructions out of order, or 4 channels or less";
  }
  if (size_t{w.group_inputs} * w.kernel[1] < kLeastRun) {
    return "6 numbers or more in a row of the window";
  }
  if (w.kernel[0] == 1 && w.kernel[1] == 1) {  // with a stride, or small as a GEMM
    const Shape& out = shapes[nodes.output];
    const size_t rows = out.elements() / out.last();
    const char* rule =
        gemm_sizes_rule(kernels, rows, w.group_inputs, out.last(), nodes.residual != kNone);
    if (rule != nullptr) return rule;
  }
  if (!fills_columns(kernels, w.group_outputs)) {
    return "channels that fill the kernel's vectors to eight ninths";
  }
  return shapes[nodes.output][2] < kernels.rows / 2 ? "wider results" : nullptr;
}

Result<std::unique_ptr<Step>> FusedConvolution::make(const Graph& graph, const LinearNodes& nodes,
                                                     const FloatKernels& kernels,
                                                     ProgramState& state) {
  const Window& window = graph.nodes[nodes.nodes[0]].window;
  std::unique_ptr<FusedConvolution> step(new FusedConvolution(nodes, window, kernels, state));
  auto gemm = PackedGemm::make(graph, nodes, kernels, state);
  if (!gemm.ok()) return gemm.status();
  step->gemm_ = std::move(*gemm);
  return std::unique_ptr<Step>(std::move(step));
}

Status FusedConvolution::reshape(const std::vector<Shape>& shapes) {
  const Shape &in = shapes[nodes_.input], &out = shapes[nodes_.output];
  images_ = in[0];
  out_height_ = out[1];
  out_width_ = out[2];
  image_.reshape(in, out, 0, false);
  return {};
}

size_t FusedConvolution::scratch_bytes() const { return image_.copied() * sizeof(float); }

Status FusedConvolution::set_pointers(std::span<void* const> addresses, const Scratch& scratch) {
  input_ = static_cast<const float*>(addresses[nodes_.input]);
  output_ = static_cast<float*>(addresses[nodes_.output]);
  if (nodes_.residual != kNone) residual_ = static_cast<const float*>(addresses[nodes_.residual]);
  padded_ = reinterpret_cast<float*>(scratch.shared);
  return {};
}

Rows FusedConvolution::row(size_t image, const float* padded, size_t y) const {
  const size_t at = (image * out_height_ + y) * out_width_ * gemm_.columns();
  return {.rows = out_width_,
          .in = padded + y * window_.stride[0] * image_.row_size(),
          .in_stride = window_.stride[1] * image_.channels(),
          .segments = window_.kernel[0],
          .segment_stride = image_.row_size(),
          .out = output_ + at,
          .out_stride = gemm_.columns(),
          .residual = residual_ == nullptr ? nullptr : residual_ + at};
}

Status FusedConvolution::run() {
  const size_t tiles = divide_up(out_width_, kernels_.rows);
  if (tiles == 0) return {};
  const bool is_cached = gemm_.is_cached();
  for (size_t image = 0; image < images_; ++image) {
    const float* from = image_.read(input_ + image * image_.elements(), 0.0f, padded_, threads_);
    parallel_for_panels(
        threads_, gemm_.panels(), out_height_, is_cached, [&](size_t panel, size_t y) {
          const TileIndex tile =
              is_cached ? TileIndex{0, tiles} : TileIndex{y * tiles, out_height_ * tiles};
          gemm_.run(panel, row(image, from, y), tile);
        });
  }
  return {};
}

}  // namespace edgewise::xnnpack
