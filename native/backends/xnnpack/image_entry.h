// Images with few channels, as they enter: planes of floats become pixels, quantized if the graph
// does that first. XNNPACK has two nodes for it, and a transpose made for many channels: on a
// picture of three these take as long as the convolution that reads them.
#pragma once

#include <cstddef>
#include <vector>

#include "backends/xnnpack/graph.h"
#include "backends/xnnpack/shape.h"
#include "core/memory.h"
#include "pthreadpool.h"

namespace edgewise::xnnpack {

class ImageEntry {
 public:
  // Takes these nodes out of the graph: what they made is the graph's input now. At most one
  // for each input. `graph` must be read and its types checked.
  static std::vector<ImageEntry> take(Graph* graph);

  // Index into Graph::inputs.
  size_t position() const { return position_; }
  // Of the payload, that it replaces.
  const std::vector<uint32_t>& nodes() const { return nodes_; }
  // What arguments must fit.
  const GraphValue& argument() const { return argument_; }
  // Of the graph's input, for a shape that an argument has.
  static Shape inside(const Shape& shape);
  // Finds memory for arguments of a shape, which must fit.
  Status resize(const Shape& shape);
  // Takes an argument of that shape; where the graph's input will lie.
  void* bind(const void* argument);
  void run(pthreadpool_t threadpool) const;

 private:
  ImageEntry(size_t position, GraphValue argument, const GraphValue& result);

  size_t position_;
  std::vector<uint32_t> nodes_;
  GraphValue argument_;
  DataType type_;  // of the graph's input: kFp32, or of 8 bits
  float steps_ = 1;
  int32_t zero_point_ = 0;
  Shape shape_;  // of the argument
  const void* source_ = nullptr;
  MemoryBlock memory_;
};

}  // namespace edgewise::xnnpack
