// Blocks of a tensor that share a scale and a zero point: quantized_decomposed::, torchao::.
//
// The operators differ in the shape of the blocks: the whole tensor, an index of one dimension
// (channel), a row (token), part of a row (group), or what `block_size` says (affine).
#pragma once

#include <array>
#include <cstdint>

#include "kernel_status.h"
#include "view.h"

namespace edgewise {
inline namespace HWY_NAMESPACE {

// A tensor cut into equal blocks. Scales lie in the row-major order of the blocks.
struct Blocks {
  Dims sizes;  // of the tensor
  Dims block;  // of a block
  int64_t count = 1;

  int64_t at(size_t dim) const { return block[dim] == 0 ? 1 : sizes[dim] / block[dim]; }
};

inline Status make_blocks(const Tensor& tensor, const Dims& block, Blocks* blocks) {
  blocks->sizes = Dims(tensor.sizes());
  blocks->block = block;
  if (block.size() != blocks->sizes.size()) {
    return error(Code::kInvalidArgument, "block_size must have %zu sizes; got %zu",
                 blocks->sizes.size(), block.size());
  }
  for (size_t dim = 0; dim < block.size(); ++dim) {
    int64_t& size = blocks->block[dim];
    if (size == -1) size = blocks->sizes[dim];
    if (size < 0 || (size == 0 && blocks->sizes[dim] != 0) ||
        (size > 0 && blocks->sizes[dim] % size != 0)) {
      return error(Code::kInvalidArgument, "blocks must divide dimension %zu of %lld; got %lld",
                   dim, static_cast<long long>(blocks->sizes[dim]), static_cast<long long>(size));
    }
    blocks->count *= blocks->at(dim);
  }
  return {};
}

// Shapes of blocks, from the arguments of the operators.
enum class Shape : uint8_t { kTensor, kChannel, kToken, kGroup, kAffine };

inline Status blocks_of(Shape shape, KernelContext& context, const Tensor& tensor, size_t argument,
                        Blocks* blocks) {
  Dims block{tensor.sizes()};
  if (shape == Shape::kAffine) {
    EDGEWISE_TRY(to_sizes(context.int_list(argument), block));
  } else if (shape == Shape::kChannel) {
    int64_t axis = context.integer(argument);
    EDGEWISE_TRY(normalize_dim(axis, block.size()));
    if (block.size() > 0)
      block[static_cast<size_t>(axis)] = block[static_cast<size_t>(axis)] ? 1 : 0;
  } else if (shape != Shape::kTensor) {
    for (size_t dim = 0; dim + 1 < block.size(); ++dim) block[dim] = block[dim] ? 1 : 0;
    if (shape == Shape::kGroup) {
      if (block.size() > 0) block[block.size() - 1] = context.integer(argument);
    }
  }
  if (!context.ok()) return context.status();
  EDGEWISE_TRY(make_blocks(tensor, block, blocks));
  return {};
}

inline int64_t last_stride(const View& view) {
  return view.sizes.size() == 0 ? 1 : view.strides[view.sizes.size() - 1];
}

// Calls `run(offsets, count, block)` for runs of elements along the last dimension that share
// a scale; offsets are into each of the views, in elements.
template <size_t N, typename Run>
void for_runs(const Blocks& blocks, const std::array<const View*, N>& views, Run&& run) {
  const size_t rank = blocks.sizes.size();
  if (blocks.sizes.product() == 0) return;
  if (rank == 0) return run(std::array<int64_t, N>{}, int64_t{1}, int64_t{0});
  const size_t inner = rank - 1;
  Dims outer = blocks.sizes;
  outer[inner] = 1;
  View::Walk walk(outer);
  do {
    std::array<int64_t, N> offsets{};
    int64_t index = 0;
    for (size_t dim = 0; dim < inner; ++dim) {
      for (size_t k = 0; k < N; ++k) offsets[k] += walk[dim] * views[k]->strides[dim];
      index = index * blocks.at(dim) + walk[dim] / blocks.block[dim];
    }
    index *= blocks.at(inner);
    for (int64_t start = 0; start < blocks.sizes[inner]; start += blocks.block[inner], ++index) {
      std::array<int64_t, N> here = offsets;
      for (size_t k = 0; k < N; ++k) here[k] += start * views[k]->strides[inner];
      run(here, blocks.block[inner], index);
    }
  } while (walk.next());
}

struct Range {
  double low = 0, high = 0;
};

// Elements that are converted at once.
inline constexpr int64_t kRun = 256;

}  // namespace HWY_NAMESPACE
}  // namespace edgewise
