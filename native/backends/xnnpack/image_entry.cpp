#include "backends/xnnpack/image_entry.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "backends/xnnpack/image_loops.h"

namespace edgewise::xnnpack {
namespace {

// Of the payload's image. Where it leaves the number open, a call may bring more, or one.
constexpr size_t kMaxChannels = 4;
constexpr size_t kTile = 2048;  // pixels: planes and result of a tile stay in the first cache

struct Job {
  const float* from;
  void* to;
  size_t channels;
  size_t pixels;  // of an image
  std::optional<PixelQuantizer> quantizer;
};

void run_tile(void* context, size_t image, size_t start, size_t count) {
  const Job& job = *static_cast<const Job*>(context);
  const float* planes = job.from + image * job.channels * job.pixels + start;
  const size_t offset = (image * job.pixels + start) * job.channels;
  if (!job.quantizer) {
    interleave(planes, job.pixels, job.channels, count, static_cast<float*>(job.to) + offset);
    return;
  }
  auto* to = static_cast<uint8_t*>(job.to) + offset;
  std::array<uint8_t, kMaxChannels * kTile> bytes;
  if (job.channels > kMaxChannels) {
    for (size_t c = 0; c < job.channels; ++c) {
      quantize_pixels(planes + c * job.pixels, count, *job.quantizer, bytes.data());
      for (size_t i = 0; i < count; ++i) to[i * job.channels + c] = bytes[i];
    }
    return;
  }
  for (size_t c = 0; c < job.channels; ++c) {
    quantize_pixels(planes + c * job.pixels, count, *job.quantizer, &bytes[c * kTile]);
  }
  interleave(bytes.data(), kTile, job.channels, count, to);
}

// The nodes that read each value; an output has one more, which is null.
std::vector<std::vector<GraphNode*>> readers_of(Graph* graph) {
  std::vector<std::vector<GraphNode*>> readers(graph->values.size());
  for (GraphNode& node : graph->nodes) {
    for (uint32_t input : node.inputs) {
      if (input != kNone) readers[input].push_back(&node);
    }
  }
  for (uint32_t output : graph->outputs) readers[output].push_back(nullptr);
  return readers;
}

bool moves_channels_last(const GraphNode& node) {
  return node.kind == NodeKind::kStaticTranspose && node.list == std::vector<uint32_t>{0, 2, 3, 1};
}

}  // namespace

ImageEntry::ImageEntry(size_t position, GraphValue argument, const GraphValue& result)
    : position_(position), argument_(std::move(argument)), type_(result.type) {
  if (type_ == DataType::kFp32) return;
  steps_ = 1.0f / result.scale;
  zero_point_ = result.zero_point;
}

std::vector<ImageEntry> ImageEntry::take(Graph* graph) {
  std::vector<ImageEntry> entries;
  const auto readers = readers_of(graph);
  const auto sole_reader = [&](uint32_t value) {
    return readers[value].size() == 1 ? readers[value][0] : nullptr;
  };
  for (size_t i = 0; i < graph->inputs.size(); ++i) {
    const uint32_t outside = graph->inputs[i];
    GraphValue& argument = graph->values[outside];
    const size_t channels = argument.shape.rank == 4 ? argument.shape[1] : 0;
    if (argument.type != DataType::kFp32 || channels < 2 || channels > kMaxChannels) continue;
    GraphNode* transpose = nullptr;
    GraphNode* quantize = nullptr;
    uint32_t last = outside;
    while (GraphNode* node = sole_reader(last)) {
      const GraphValue& made = graph->values[node->outputs[0]];
      if (transpose == nullptr && moves_channels_last(*node)) {
        transpose = node;
      } else if (quantize == nullptr && node->kind == NodeKind::kConvert &&
                 is_quantized_8bit(made.type)) {
        quantize = node;
      } else {
        break;
      }
      last = node->outputs[0];
    }
    GraphValue& result = graph->values[last];
    if (transpose == nullptr || result.is_output) continue;
    entries.push_back(ImageEntry(i, argument, result));
    result.is_input = std::exchange(argument.is_input, false);
    result.external_id = std::exchange(argument.external_id, kNone);
    result.shape = inside(argument.shape);
    graph->inputs[i] = last;
    for (GraphNode* node : {transpose, quantize}) {
      if (node == nullptr) continue;
      node->add_indices(&entries.back().nodes_);
      node->kind = NodeKind::kNothing;
    }
  }
  graph->erase_nothing();
  return entries;
}

Shape ImageEntry::inside(const Shape& shape) {
  Shape result = shape;
  result[1] = shape[2];
  result[2] = shape[3];
  result[3] = shape[1];
  return result;
}

Status ImageEntry::resize(const Shape& shape) {
  if (!shape.fits()) {
    return error(Code::kInvalidArgument, "[xnnpack] argument %u is too large: %s",
                 argument_.external_id, shape.text().c_str());
  }
  shape_ = shape;
  const size_t bytes = byte_size(type_, shape);
  if (memory_.size() >= bytes && memory_.data() != nullptr) return {};
  auto memory = MemoryBlock::allocate(bytes);
  if (!memory.ok()) return memory.status();
  memory_ = std::move(*memory);
  return {};
}

void* ImageEntry::bind(const void* argument) {
  source_ = argument;
  return memory_.data();
}

void ImageEntry::run(pthreadpool_t threadpool) const {
  Job job{static_cast<const float*>(source_), memory_.data(), shape_[1], shape_[2] * shape_[3],
          std::nullopt};
  if (type_ != DataType::kFp32) {
    const int32_t low = type_ == DataType::kQint8 ? -128 : 0;
    job.quantizer = {steps_, static_cast<float>(low - zero_point_),
                     static_cast<float>(low + 255 - zero_point_), zero_point_};
  }
  pthreadpool_parallelize_2d_tile_1d(threadpool, run_tile, &job, shape_[0], job.pixels, kTile, 0);
}

}  // namespace edgewise::xnnpack
