#include <cmath>

#include "backends/xnnpack/read_graph.h"

namespace edgewise::xnnpack {
namespace {

using Union = fb::XNodeUnion;

// Flags that change nothing here: some writers set them on nodes that do not know them, or ask
// for packing that XNNPACK chooses itself.
constexpr uint32_t kIgnoredFlags = XNN_FLAG_KEEP_DIMS | XNN_FLAG_YIELD_WORKERS |
                                   XNN_FLAG_TRANSIENT_INDIRECTION_BUFFER | 0x80 | 0x100;

struct NodeReader {
  const ValueIndex& index;
  GraphNode* node;
  Status status;

  uint32_t find(uint32_t id) {
    const auto found = index.find(id);
    if (found != index.end()) return found->second;
    if (status.ok()) {
      status = node_error(Code::kInvalidProgram, *node, "value %u must be defined; it is not", id);
    }
    return 0;
  }
  void input(uint32_t id) { node->inputs.push_back(find(id)); }
  void output(uint32_t id) { node->outputs.push_back(find(id)); }
  void list(const flatbuffers::Vector<uint32_t>* source, const char* what,
            std::vector<uint32_t>* target) {
    if (source != nullptr && source->size() <= kMaxRank) {
      target->assign(source->begin(), source->end());
    } else if (status.ok()) {
      status = node_error(Code::kInvalidProgram, *node, "it must have at most %zu %s; got %s",
                          kMaxRank, what, source == nullptr ? "none" : "more");
    }
  }

  void read(const fb::_XNNNode1x1& source) {
    input(source.input_id());
    output(source.output_id());
    node->flags = source.flags();
  }
  void read(const fb::_XNNNode2x1& source) {
    input(source.input1_id());
    input(source.input2_id());
    output(source.output_id());
    node->flags = source.flags();
  }
  void read(const fb::_XNNCat& source) {
    const uint32_t ids[] = {source.input1_id(), source.input2_id(), source.input3_id(),
                            source.input4_id(), source.input5_id()};
    const size_t count = traits_of(node->kind).inputs;
    for (size_t i = 0; i < count; ++i) input(ids[i]);
    output(source.output_id());
    node->axis = static_cast<int32_t>(source.axis());
    node->flags = source.flags();
  }
  void read(const fb::_XNNNodeConv& source) {
    Window& window = node->window;
    window.pad_top = source.padding_top();
    window.pad_right = source.padding_right();
    window.pad_bottom = source.padding_bottom();
    window.pad_left = source.padding_left();
    window.kernel[0] = source.kernel_height();
    window.kernel[1] = source.kernel_width();
    window.stride[0] = source.subsampling_height();
    window.stride[1] = source.subsampling_width();
    window.dilation[0] = source.dilation_height();
    window.dilation[1] = source.dilation_width();
    window.adjustment[0] = source.adjustment_height();
    window.adjustment[1] = source.adjustment_width();
    window.groups = source.groups();
    window.group_inputs = source.group_input_channels();
    window.group_outputs = source.group_output_channels();
    filter(source.input1_id(), source.filter_id(), source.bias_id(), source.output_id());
    node->flags = source.flags();
  }
  void read(const fb::_XNNPooling2D& source) {
    pool(source);
    node->window.stride[0] = source.stride_height();
    node->window.stride[1] = source.stride_width();
    if (node->kind == NodeKind::kMaxPooling2d) {  // of averages it means nothing, and may be 0
      node->window.dilation[0] = source.dilation_height();
      node->window.dilation[1] = source.dilation_width();
    }
    output(source.output_id());
    node->flags = source.flags();
  }
  void read(const fb::XNNArgMaxPooling2d& source) {
    pool(source);
    node->window.stride[0] = source.pooling_height();
    node->window.stride[1] = source.pooling_width();
    output(source.output_value_id());
    output(source.output_index_id());
    node->flags = source.flags();
  }
  template <typename T>
  void pool(const T& source) {
    Window& window = node->window;
    window.pad_top = source.padding_top();
    window.pad_right = source.padding_right();
    window.pad_bottom = source.padding_bottom();
    window.pad_left = source.padding_left();
    window.kernel[0] = source.pooling_height();
    window.kernel[1] = source.pooling_width();
    input(source.input_id());
  }
  void filter(uint32_t input_id, uint32_t filter_id, uint32_t bias_id, uint32_t output_id) {
    input(input_id);
    input(filter_id);
    node->inputs.push_back(bias_id == kNone ? kNone : find(bias_id));
    output(output_id);
  }
  void read(const fb::XNNFullyConnected& source) {
    filter(source.input1_id(), source.filter_id(), source.bias_id(), source.output_id());
    node->flags = source.flags();
  }
  template <typename T>
  void one_to_one(const T& source) {
    input(source.input_id());
    output(source.output_id());
    node->flags = source.flags();
  }
  void read(const fb::XNNStaticTranspose& source) {
    one_to_one(source);
    list(source.perm(), "dimensions", &node->list);
  }
  void read(const fb::XNNStaticResizeBilinear2D& source) {
    one_to_one(source);
    node->list = {source.new_height(), source.new_width()};
  }
  void read(const fb::XNNStaticConstantPad& source) {
    one_to_one(source);
    list(source.pre_paddings(), "paddings", &node->list);
    list(source.post_paddings(), "paddings", &node->list2);
    node->number = source.padding_value();
  }
  void read(const fb::XNNStaticReshape& source) {
    one_to_one(source);
    list(source.new_shape(), "sizes", &node->list);
  }
  void read(const fb::XNNStaticSlice& source) {
    one_to_one(source);
    list(source.offsets(), "offsets", &node->list);
    list(source.sizes(), "sizes", &node->list2);
  }
  void read(const fb::XNNLeakyReLU& source) {
    one_to_one(source);
    node->number = source.negative_slope();
  }
  void read(const fb::XNNELU& source) {
    one_to_one(source);
    node->number = source.alpha();
  }
  void read(const fb::XNNScaledDotProductAttention& source) {
    for (uint32_t id : {source.query_id(), source.key_id(), source.value_id(), source.scale_id(),
                        source.mask_id()}) {
      input(id);
    }
    output(source.output_id());
    node->flags = source.flags();
  }

  void read_union(Union type, const void* source);
};

// The verifier has checked that the table is of the union's type.
void NodeReader::read_union(Union type, const void* source) {
  switch (type) {
#define EDGEWISE_XNNPACK_NODE(name, table, ...) \
  case Union::XNN##name:                        \
    return read(*static_cast<const fb::table*>(source));
#include "backends/xnnpack/node_kinds.inc"
#undef EDGEWISE_XNNPACK_NODE
    default:
      return;
  }
}

Status read_node(const fb::XNode& source, const ValueIndex& index, GraphNode* node) {
  const Union type = source.xnode_union_type();
  node->debug_handle = source.debug_handle();
  if (type == Union::NONE || type > Union::MAX || source.xnode_union() == nullptr) {
    return error(Code::kUnsupported,
                 "[xnnpack] node %u: type %d is not known; it may be of a later version of the "
                 "format",
                 node->index, static_cast<int>(type));
  }
  node->kind = static_cast<NodeKind>(type);
  NodeReader reader{index, node, {}};
  reader.read_union(type, source.xnode_union());
  if (!reader.status.ok()) return reader.status;
  if (const auto* bounds = source.output_min_max()) {
    node->min = bounds->output_min();
    node->max = bounds->output_max();
    node->has_bounds = std::isfinite(node->min) || std::isfinite(node->max);
    const bool may_be_equal = node->kind == NodeKind::kClamp;
    if (!(node->min < node->max || (may_be_equal && node->min == node->max))) {
      return node_error(Code::kInvalidProgram, *node,
                        "its minimum must be below its maximum; got %g and %g",
                        static_cast<double>(node->min), static_cast<double>(node->max));
    }
  }
  const uint32_t known = traits_of(node->kind).flags;
  const uint32_t unknown = node->flags & ~(known | kIgnoredFlags);
  if (unknown != 0) {
    return node_error(Code::kUnsupported, *node, "flags 0x%x are not supported", unknown);
  }
  node->flags &= known;
  return {};
}

}  // namespace

Status read_nodes(const Payload& payload, const ValueIndex& index, Graph* graph) {
  const auto& sources = *payload.graph->xnodes();
  graph->nodes.resize(sources.size());
  for (uint32_t i = 0; i < sources.size(); ++i) {
    GraphNode* node = &graph->nodes[i];
    node->index = i;
    if (auto status = read_node(*sources.Get(i), index, node); !status.ok()) return status;
    if (node->kind == NodeKind::kArgMaxPooling2d) graph->values[node->outputs[1]].is_index = true;
  }
  return {};
}

}  // namespace edgewise::xnnpack
