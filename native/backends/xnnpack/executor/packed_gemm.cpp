#include "backends/xnnpack/executor/packed_gemm.h"

#include <algorithm>

#include "backends/xnnpack/allocator.h"
#include "backends/xnnpack/executor/panels.h"
#include "backends/xnnpack/executor/parallel.h"

namespace edgewise::xnnpack {
namespace {

// What of a core's first cache is for a GEMM's left factor.
constexpr size_t kFirstCache = 16 * 1024;

// Tiles [from, to) of as many.
Rows tiles_of(const Rows& all, size_t tiles, size_t from, size_t to) {
  const size_t first = part_start(all.rows, tiles, from);
  Rows rows = all;
  rows.rows = part_start(all.rows, tiles, to) - first;
  rows.in += first * all.in_stride;
  rows.out += first * all.out_stride;
  if (rows.residual != nullptr) rows.residual += first * all.out_stride;
  return rows;
}

}  // namespace

size_t packed_bytes(const FloatKernels& kernels, size_t depth, size_t columns) {
  return depth * padded_columns(kernels, columns) * sizeof(float);
}

bool is_gemm(const GraphNode& node) {
  const Window& w = node.window;
  if (node.kind == NodeKind::kFullyConnected) {
    return (node.flags & ~uint32_t{XNN_FLAG_TRANSPOSE_WEIGHTS}) == 0;
  }
  return node.kind == NodeKind::kConv2d && node.flags == 0 && w.groups == 1 && w.is_pointwise() &&
         (w.pad_top | w.pad_right | w.pad_bottom | w.pad_left) == 0;
}

Result<PackedGemm> PackedGemm::make(const Graph& graph, const LinearNodes& nodes,
                                    const FloatKernels& kernels, ProgramState& state) {
  PackedGemm result;
  const Shape& filter = graph.values[nodes.filter].shape;
  const bool is_transposed = (graph.nodes[nodes.nodes[0]].flags & XNN_FLAG_TRANSPOSE_WEIGHTS) != 0;
  const size_t depth = is_transposed ? filter[0] : filter.elements() / filter[0];
  const size_t columns = filter.elements() / depth;
  const size_t padded = padded_columns(kernels, columns);
  const std::string form =
      weights_form("gemm", kernels.name, {depth, columns, size_t{is_transposed}});
  auto weights = FusedKernelWeights::make(
      graph, nodes.filter, nodes.bias, (depth + 1) * padded, form, state,
      [&](const float* from, const float* bias, float* packed) {
        pack_panels(kernels, from, depth, columns, is_transposed ? columns : 1,
                    is_transposed ? 1 : depth, packed, state.threadpool());
        float* end = packed + depth * padded;
        std::fill(end, end + padded, 0.0f);
        if (bias != nullptr) std::copy_n(bias, columns, end);
      });
  if (!weights.ok()) return weights.status();
  result.kernels_ = &kernels;
  result.weights_ = std::move(*weights);
  result.depth_ = depth;
  result.columns_ = columns;
  result.padded_ = padded;
  result.min_ = nodes.min;
  result.max_ = nodes.max;
  return result;
}

size_t PackedGemm::columns_of(size_t panel) const {
  return std::min(kernels_->columns, columns_ - panel * kernels_->columns);
}

GemmTile PackedGemm::tile_of(size_t panel, const Rows& rows, TileIndex tile) const {
  const float* weights = weights_.data() + panel * kernels_->columns * depth_;
  const size_t ahead_step = panel_bytes() / (tile.tiles * depth_);
  return {.rows = rows.rows,
          .depth = depth_ / rows.segments,
          .segments = rows.segments,
          .segment_stride = rows.segment_stride,
          .a = rows.in,
          .a_stride = rows.in_stride,
          .panel = weights,
          .panel_stride = kernels_->columns,
          .columns = columns_of(panel),
          .c = rows.out,
          .c_stride = rows.out_stride,
          .ahead = reinterpret_cast<const char*>(weights) + panel_bytes() +
                   ahead_step * depth_ * tile.index,
          .ahead_step = ahead_step};
}

Finish PackedGemm::finish_of(size_t panel) const {
  return {.bias = weights_.data() + padded_ * depth_ + panel * kernels_->columns,
          .min = min_,
          .max = max_};
}

void PackedGemm::run_padded(size_t panel, const Rows& rows, size_t most_rows) const {
  const Finish finish = finish_of(panel);
  GemmTile tile = tile_of(panel, rows, {0, divide_up(rows.rows, most_rows)});
  tile.columns = round_up(tile.columns, kernels_->lanes);
  tile.most_rows = most_rows;
  kernels_->multiply(tile, &finish);
}

void PackedGemm::run(size_t panel, const Rows& rows, TileIndex part) const {
  const size_t first = panel * kernels_->columns;
  GemmTile tile = tile_of(panel, rows, part);
  Finish finish = finish_of(panel);
  tile.c += first;
  if (rows.residual != nullptr) {
    finish.residual = rows.residual + first;
    finish.residual_stride = rows.out_stride;
  }
  kernels_->multiply(tile, &finish);
}

void PackedGemm::run_all(pthreadpool_t pool, const Rows& all) const {
  // Rows that are a multiple of a page apart share a set of the first cache, which has few ways.
  constexpr size_t kPage = 4096;
  constexpr size_t kWays = 8;
  const bool is_crowded = all.in_stride * sizeof(float) % kPage == 0;
  const size_t tiles =
      divide_up(all.rows, is_crowded ? std::min(kernels_->rows, kWays) : kernels_->rows);
  const size_t threads = threads_of(pool);
  // Tiles that stay in the first cache beside a panel.
  const size_t together =
      std::max<size_t>(1, kFirstCache / (kernels_->rows * depth_ * sizeof(float)));
  // Enough items that a thread which is late does little harm.
  if (is_cached()) {
    const size_t items =
        threads == 1 ? 1 : std::min(tiles, divide_up(tiles, 4 * 8 * threads) * 8 * threads);
    parallel_for(pool, items, [&](size_t item, size_t) {
      const size_t end = part_start(tiles, items, item + 1);
      for (size_t tile = part_start(tiles, items, item); tile < end; tile += together) {
        const size_t next = std::min(tile + together, end);
        const Rows rows = tiles_of(all, tiles, tile, next);
        for (size_t panel = 0; panel < panels(); ++panel) run(panel, rows, {tile, tiles});
      }
    });
    return;
  }
  const size_t chunks = std::min(tiles, divide_up(8 * threads, panels()));
  parallel_for(pool, panels() * chunks, [&](size_t item, size_t) {
    const size_t chunk = item % chunks;
    const size_t end = part_start(tiles, chunks, chunk + 1);
    for (size_t tile = part_start(tiles, chunks, chunk); tile < end; tile += together) {
      const size_t next = std::min(tile + together, end);
      run(item / chunks, tiles_of(all, tiles, tile, next), {tile, tiles});
    }
  });
}

}  // namespace edgewise::xnnpack
