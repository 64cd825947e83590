#include "tensor_copy.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "memory.h"

namespace edgewise {

namespace {

// Loops of a copy, outermost first. The target is walked in the order of its memory.
struct Loop {
  int64_t count = 1;
  int64_t source_stride = 0;  // in elements
  int64_t target_stride = 0;
};

std::vector<Loop> plan_loops(const Tensor& source, const Tensor& target) {
  std::vector<Loop> loops;
  for (const uint8_t dim : target.dim_order()) {
    const Loop loop{target.size(dim), source.strides()[dim], target.strides()[dim]};
    if (loop.count == 1) continue;
    if (!loops.empty() && loops.back().source_stride == loop.source_stride * loop.count &&
        loops.back().target_stride == loop.target_stride * loop.count) {
      loops.back() = {loops.back().count * loop.count, loop.source_stride, loop.target_stride};
    } else {
      loops.push_back(loop);
    }
  }
  return loops;
}

template <typename T>
void run_loops(const Loop* loop, const Loop* end, const T* source, T* target) {
  if (loop == end) {
    *target = *source;
    return;
  }
  if (loop + 1 == end) {
    for (int64_t i = 0; i < loop->count; ++i) {
      target[i * loop->target_stride] = source[i * loop->source_stride];
    }
    return;
  }
  if (loop + 2 == end) {  // unrolled, since channels are often few
    const Loop inner = loop[1];
    for (int64_t i = 0; i < loop->count; ++i) {
      for (int64_t j = 0; j < inner.count; ++j) {
        target[i * loop->target_stride + j * inner.target_stride] =
            source[i * loop->source_stride + j * inner.source_stride];
      }
    }
    return;
  }
  for (int64_t i = 0; i < loop->count; ++i) {
    run_loops(loop + 1, end, source + i * loop->source_stride, target + i * loop->target_stride);
  }
}

template <typename T>
void copy_strided(const std::vector<Loop>& loops, const void* source, void* target) {
  run_loops(loops.data(), loops.data() + loops.size(), static_cast<const T*>(source),
            static_cast<T*>(target));
}

}  // namespace

bool same_layout(const Tensor& a, const Tensor& b) {
  for (size_t dim = 0; dim < a.rank(); ++dim) {
    if (a.size(dim) > 1 && a.strides()[dim] != b.strides()[dim]) return false;
  }
  return true;
}

Status copy_elements(const Tensor& source, Tensor& target) {
  if (source.type() != target.type() || !std::ranges::equal(source.sizes(), target.sizes())) {
    return error(Code::kInvalidArgument, "[copy] the tensors must be alike; got %s and %s",
                 source.describe().c_str(), target.describe().c_str());
  }
  const size_t bytes = source.nbytes();
  if (bytes == 0) return Status::ok_status();
  const auto* from = source.data<std::byte>();
  auto* to = target.data<std::byte>();
  if (from == nullptr || to == nullptr) {
    return error(Code::kInvalidArgument, "[copy] %s has no memory", source.describe().c_str());
  }
  const size_t size = element_size(source.type());
  if (same_layout(source, target)) {
    std::memmove(to, from, bytes);
    return Status::ok_status();
  }
  // Element-wise: from a copy if the two overlap, or the caller's memory is not aligned.
  MemoryBlock staged;
  if ((from < to + bytes && to < from + bytes) || reinterpret_cast<uintptr_t>(from) % size != 0) {
    Result<MemoryBlock> block = MemoryBlock::allocate(bytes);
    if (!block) return block.status();
    staged = std::move(*block);
    std::memcpy(staged.data(), from, bytes);
    from = staged.data();
  }
  const std::vector<Loop> loops = plan_loops(source, target);
  switch (size) {
    case 1:
      copy_strided<uint8_t>(loops, from, to);
      break;
    case 2:
      copy_strided<uint16_t>(loops, from, to);
      break;
    case 4:
      copy_strided<uint32_t>(loops, from, to);
      break;
    default:
      copy_strided<uint64_t>(loops, from, to);
      break;
  }
  return Status::ok_status();
}

}  // namespace edgewise
