#include "backends/xnnpack/executor/fused_batch_gemm.h"

#include <algorithm>

#include "backends/xnnpack/executor/linear_nodes.h"
#include "backends/xnnpack/executor/packed_gemm.h"
#include "backends/xnnpack/executor/panels.h"
#include "backends/xnnpack/executor/parallel.h"

namespace edgewise::xnnpack {
namespace {

// Bytes of a right factor, packed: each thread packs one, and parts of a matrix do so again.
constexpr size_t kMostPacked = 1024 * 1024;

// XNNPACK's operator may repeat matrices of a factor; this kernel does not.
bool is_paired(const std::vector<Shape>& shapes, const GraphNode& node) {
  const Shape& left = shapes[node.inputs[0]];
  const Shape& right = shapes[node.inputs[1]];
  if (left.rank != right.rank) return false;
  for (size_t d = 0; d + 2 < left.rank; ++d) {
    if (left[d] != right[d]) return false;
  }
  return true;
}

bool is_small_enough(const std::vector<Shape>& shapes, const GraphNode& node,
                     const FloatKernels& kernels) {
  return packed_bytes(kernels, shapes[node.inputs[0]].last(), shapes[node.outputs[0]].last()) <=
         kMostPacked;
}

}  // namespace

const char* batch_gemm_rule(const Graph& graph, const std::vector<Shape>& shapes,
                            const GraphNode& node, const FloatKernels& kernels) {
  if (!is_plain(graph, node.inputs[0]) || !is_plain(graph, node.inputs[1]) || node.is_bounded()) {
    return "computed factors of float32";
  }
  if (!is_paired(shapes, node)) return "as many matrices in both factors";
  if (!is_small_enough(shapes, node, kernels)) return "a right factor of 1 MiB at most";
  const Shape& out = shapes[node.outputs[0]];
  return gemm_sizes_rule(kernels, out[out.rank - 2], shapes[node.inputs[0]].last(), out.last(),
                         false);
}

Result<std::unique_ptr<Step>> FusedBatchGemm::make(const GraphNode& node,
                                                   const FloatKernels& kernels,
                                                   ProgramState& state) {
  std::unique_ptr<FusedBatchGemm> step(new FusedBatchGemm(node, kernels, state));
  return std::unique_ptr<Step>(std::move(step));
}

bool FusedBatchGemm::can_take(const std::vector<Shape>& shapes) const {
  return is_paired(shapes, node_) && is_small_enough(shapes, node_, kernels_);
}

Status FusedBatchGemm::reshape(const std::vector<Shape>& shapes) {
  const Shape& out = shapes[node_.outputs[0]];
  rows_ = out[out.rank - 2];
  columns_ = out.last();
  depth_ = shapes[node_.inputs[0]].last();
  matrices_ = out.leading(out.rank - 2);
  return {};
}

size_t FusedBatchGemm::packed_floats() const {
  return packed_bytes(kernels_, depth_, columns_) / sizeof(float);
}

size_t FusedBatchGemm::thread_scratch_bytes() const { return packed_floats() * sizeof(float); }

Status FusedBatchGemm::set_pointers(std::span<void* const> addresses, const Scratch& scratch) {
  left_ = static_cast<const float*>(addresses[node_.inputs[0]]);
  right_ = static_cast<const float*>(addresses[node_.inputs[1]]);
  output_ = static_cast<float*>(addresses[node_.outputs[0]]);
  scratch_ = scratch;
  return {};
}

void FusedBatchGemm::run_rows(size_t matrix, size_t from, size_t to, float* packed) const {
  const bool is_transposed = (node_.flags & XNN_FLAG_TRANSPOSE_B) != 0;
  pack_panels(kernels_, right_ + matrix * depth_ * columns_, depth_, columns_,
              is_transposed ? 1 : columns_, is_transposed ? depth_ : 1, packed, nullptr);
  const size_t blocks = divide_up(to - from, kernels_.rows);
  for (size_t block = 0; block < blocks; ++block) {
    const size_t row = from + part_start(to - from, blocks, block);
    const size_t end = from + part_start(to - from, blocks, block + 1);
    for (size_t first = 0; first < columns_; first += kernels_.columns) {
      kernels_.multiply({.rows = end - row,
                         .depth = depth_,
                         .a = left_ + (matrix * rows_ + row) * depth_,
                         .a_stride = depth_,
                         .panel = packed + first * depth_,
                         .panel_stride = kernels_.columns,
                         .columns = std::min(kernels_.columns, columns_ - first),
                         .c = output_ + (matrix * rows_ + row) * columns_ + first,
                         .c_stride = columns_},
                        nullptr);
    }
  }
}

Status FusedBatchGemm::run() {
  // Each part packs the right factor again.
  const size_t parts =
      parts_of_items(matrices_, threads_of(threads_), divide_up(rows_, kernels_.rows));
  parallel_for(threads_, matrices_ * parts, [&](size_t item, size_t thread) {
    const size_t part = item % parts;
    run_rows(item / parts, part_start(rows_, parts, part), part_start(rows_, parts, part + 1),
             scratch_.of_thread<float>(thread));
  });
  return {};
}

}  // namespace edgewise::xnnpack
