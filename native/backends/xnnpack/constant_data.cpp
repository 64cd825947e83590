#include "backends/xnnpack/constant_data.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "backends/xnnpack/dequantize_weights.h"

namespace edgewise::xnnpack {
namespace {

// Between blobs there is padding, or a small blob that is cheap to read again.
constexpr std::ptrdiff_t kMaxGap = 4096;

std::vector<bool> read_by_packing(const Graph& graph) {
  std::vector<bool> result(graph.values.size());
  for (size_t i = 0; i < graph.values.size(); ++i) result[i] = graph.values[i].is_constant();
  for (const GraphNode& node : graph.nodes) {
    const bool packs = packs_weights(graph, node);
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (node.inputs[i] != kNone && (i == 0 || !packs)) result[node.inputs[i]] = false;
    }
  }
  return result;
}

float from_half(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000) << 16;
  const uint32_t exponent = (half >> 10) & 0x1f;
  const uint32_t fraction = half & 0x3ff;
  if (exponent == 0x1f) return std::bit_cast<float>(sign | 0x7f800000 | (fraction << 13));
  if (exponent == 0) {
    const float magnitude = static_cast<float>(fraction) * 0x1p-24f;
    return sign != 0 ? -magnitude : magnitude;
  }
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (fraction << 13));
}

Result<MemoryBlock> upcast(const GraphValue& value) {
  const size_t count = value.shape.elements();
  auto block = MemoryBlock::allocate(count * sizeof(float));
  if (!block.ok()) return block.status();
  const bool is_bfloat16 = value.stored == DataType::kBf16;
  const std::byte* from = value.data.bytes.data();
  for (size_t i = 0; i < count; ++i) {
    uint16_t half;
    std::memcpy(&half, from + i * sizeof(half), sizeof(half));
    const float wide = is_bfloat16 ? from_bfloat16(half) : from_half(half);
    std::memcpy(block->data() + i * sizeof(wide), &wide, sizeof(wide));
  }
  return block;
}

}  // namespace

bool packs_weights(const Graph& graph, const GraphNode& node) {
  if (!node.is_convolution() && node.kind != NodeKind::kFullyConnected) return false;
  for (size_t i = 1; i < node.inputs.size(); ++i) {
    if (node.inputs[i] != kNone && !graph.values[node.inputs[i]].is_constant()) return false;
  }
  return true;
}

Result<ConstantData> ConstantData::make(const Graph& graph, std::span<const uint32_t> values) {
  ConstantData result;
  for (const uint32_t index : values) {
    result.addresses.push_back(nullptr);
    result.copies.emplace_back();
    if (index == kNone) continue;
    const GraphValue& value = graph.values[index];
    result.addresses.back() = value.data.bytes.data();
    if (!value.is_converted()) continue;
    auto block = is_half(value.stored) ? upcast(value) : dequantized(value);
    if (!block.ok()) return block.status();
    result.addresses.back() = block->data();
    result.copies.back() = std::move(*block);
  }
  return result;
}

void release_constants(const Graph& graph, const NamedData& named_data) {
  const std::vector<bool> is_packed_only = read_by_packing(graph);
  std::vector<std::span<const std::byte>> parts;
  for (size_t i = 0; i < graph.values.size(); ++i) {
    const GraphValue& value = graph.values[i];
    if (!value.data.is_named) continue;
    if (is_packed_only[i] || value.is_converted()) parts.push_back(value.data.bytes);
  }
  std::sort(parts.begin(), parts.end(),
            [](const auto& a, const auto& b) { return a.data() < b.data(); });
  // Neighbours together, so that the pages that they share go too.
  std::span<const std::byte> run;
  for (const auto& part : parts) {
    const std::byte* end = run.data() + run.size();
    if (!run.empty() && part.data() <= end + kMaxGap) {
      const std::byte* last = std::max(end, part.data() + part.size());
      run = {run.data(), last};
      continue;
    }
    named_data.release(run);
    run = part;
  }
  named_data.release(run);
}

}  // namespace edgewise::xnnpack
