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

bool suits_convolution(const Graph& graph, const std::vector<Shape>& shapes,
                       const LinearNodes& nodes, const FloatKernels& kernels) {
  const GraphNode& node = graph.nodes[nodes.nodes[0]];
  const Window& w = node.window;
  return node.kind == NodeKind::kConv2d && node.flags == 0 && w.groups == 1 && w.dilation[0] == 1 &&
         w.dilation[1] == 1 && (kernels.gemm_pays || w.group_inputs <= kFewChannels) &&
         size_t{w.group_inputs} * w.kernel[1] >= kLeastRun &&
         computed_columns(kernels, w.group_outputs) * 8 <= size_t{w.group_outputs} * 9 &&
         shapes[nodes.output][2] >= kernels.rows / 2;
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
  const Shape& in = shapes[nodes_.input];
  const Shape& out = shapes[nodes_.output];
  const Window& w = window_;
  images_ = in[0];
  height_ = in[1];
  width_ = in[2];
  channels_ = in[3];
  out_height_ = out[1];
  out_width_ = out[2];
  pads_ = (w.pad_top | w.pad_right | w.pad_bottom | w.pad_left) != 0;
  padded_height_ = pads_ ? (out_height_ - 1) * w.stride[0] + w.kernel[0] : height_;
  const size_t read = (out_width_ - 1) * w.stride[1] + w.kernel[1];
  row_floats_ = (pads_ ? std::max(read, w.pad_left + width_) : width_) * channels_;
  return {};
}

size_t FusedConvolution::scratch_bytes() const {
  return pads_ ? padded_height_ * row_floats_ * sizeof(float) : 0;
}

Status FusedConvolution::set_pointers(std::span<void* const> addresses, std::byte* scratch) {
  input_ = static_cast<const float*>(addresses[nodes_.input]);
  output_ = static_cast<float*>(addresses[nodes_.output]);
  if (nodes_.residual != kNone) residual_ = static_cast<const float*>(addresses[nodes_.residual]);
  padded_ = reinterpret_cast<float*>(scratch);
  return {};
}

void FusedConvolution::pad_row(const float* image, size_t y) const {
  float* to = padded_ + y * row_floats_;
  // Rows before the image wrap around to beyond it.
  y -= window_.pad_top;
  if (y >= height_) {
    std::fill_n(to, row_floats_, 0.0f);
    return;
  }
  const size_t before = window_.pad_left * channels_, count = width_ * channels_;
  std::fill_n(to, before, 0.0f);
  std::copy_n(image + y * count, count, to + before);
  std::fill(to + before + count, to + row_floats_, 0.0f);
}

void FusedConvolution::run_row(size_t image, const float* padded, size_t y) const {
  const size_t at = (image * out_height_ + y) * out_width_ * gemm_.columns();
  const Rows row{.rows = out_width_,
                 .in = padded + y * window_.stride[0] * row_floats_,
                 .in_stride = window_.stride[1] * channels_,
                 .segments = window_.kernel[0],
                 .segment_stride = row_floats_,
                 .out = output_ + at,
                 .out_stride = gemm_.columns(),
                 .residual = residual_ == nullptr ? nullptr : residual_ + at};
  const size_t tiles = divide_up(out_width_, kernels_.rows);
  for (size_t panel = 0; panel < gemm_.panels(); ++panel) gemm_.run(panel, row, {0, tiles});
}

Status FusedConvolution::run() {
  for (size_t image = 0; image < images_; ++image) {
    const float* from = input_ + image * height_ * width_ * channels_;
    if (pads_) {
      parallel_for(threads_, padded_height_, [&](size_t y, size_t) { pad_row(from, y); });
      from = padded_;
    }
    parallel_for(threads_, out_height_, [&](size_t y, size_t) { run_row(image, from, y); });
  }
  return {};
}

}  // namespace edgewise::xnnpack
