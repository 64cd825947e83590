#include "elementwise.h"

#include <algorithm>
#include <optional>
#include <string>

namespace edgewise {
inline namespace HWY_NAMESPACE {
namespace {

constexpr int64_t kBlock = 512;

bool narrows(const Operation& operation, ScalarType common) {
  return is_integral(common) || (operation.rounds_numbers && is_half(common));
}

// Broadcasts, resizes `out`; views of the operands come out expanded.
Status prepare(KernelContext& context, std::span<const Operand> operands,
               std::span<ScalarView> scalars, std::span<View> views, Tensor* out,
               ElementwiseTypes types, const Operation& operation) {
  Dims sizes;
  for (const Operand& operand : operands) {
    if (!operand.tensor) continue;
    if (!is_computable(operand.tensor->type())) {
      return context.fail(Code::kUnsupported,
                          "computes on floating, integer and bool types; got %s",
                          operand.tensor->describe().c_str());
    }
    const Status fits = broadcast(operand.tensor->sizes(), sizes);
    if (!fits.ok()) return context.fail(fits.code(), "%s", fits.message().c_str());
  }
  if (!can_store(types.result, out->type())) {
    return context.fail(Code::kInvalidArgument,
                        "the result is %s, which an output may only widen; got an output of %s",
                        std::string(to_string(types.result)).c_str(), out->describe().c_str());
  }
  for (const Operand& operand : operands) {
    if (operand.tensor == out && !std::ranges::equal(out->sizes(), sizes.span())) {
      return context.fail(Code::kInvalidProgram,
                          "an operand may be the output if it has the result's shape; got %s",
                          out->describe().c_str());
    }
  }
  const Status resized = out->resize(sizes);
  if (!resized.ok()) return context.fail(resized.code(), "output: %s", resized.message().c_str());
  for (size_t k = 0; k < operands.size(); ++k) {
    View view = operands[k].tensor ? view_of(*operands[k].tensor) : scalars[k].view();
    // Numbers do not widen a type: they wrap to it, and some operations round them to it first.
    if (view.sizes.size() == 0 && view.type != types.common && narrows(operation, types.common)) {
      view = scalars[k].narrow(view, types.common);
    }
    views[k] = view.expand(sizes);
  }
  return {};
}

// The type as which operands are read: the common one, or one that the operation has a loop for
// and that gives the same.
ScalarType reading_type(const Operation& operation, ScalarType common, ScalarType out) {
  if (operation.condition) return common;
  if (is_integral(common)) {
    // A wider output would show the bits that wrap.
    const bool own = out == common || (operation.to_bool && out == ScalarType::kBool);
    if (own && operation.loop(common)) return common;
    if (own && is_short(common) && operation.loop(ScalarType::kInt)) return ScalarType::kInt;
    if (operation.loop(ScalarType::kLong)) return ScalarType::kLong;
  }
  if (out == common && operation.loop(common)) return common;
  const bool single = common != ScalarType::kDouble && operation.loop(ScalarType::kFloat);
  return single ? ScalarType::kFloat : ScalarType::kDouble;
}

// Repeats the last of `count` elements up to `end`: it takes no path that the others do not.
void repeat_last(size_t size, std::byte* block, int64_t count, int64_t end) {
  const std::byte* last = block + static_cast<size_t>(count - 1) * size;
  for (int64_t i = count; i < end; ++i)
    std::memcpy(block + static_cast<size_t>(i) * size, last, size);
}

// Where an operand, or the result, lies.
struct Source {
  const std::byte* data = nullptr;
  ScalarType type = ScalarType::kFloat;
  int64_t step = 0;  // in elements; 0 repeats
};

struct Plan {
  size_t count = 0;  // of operands
  std::array<ScalarType, kMostOperands> reads;
  ScalarType result;  // of the loop
  BlockLoop loop = nullptr;
};

// `count` elements of the result, from operands that are a step apart each.
[[gnu::noinline]] void run_row(const Plan& plan, const Operation& operation,
                               const std::array<Source, kMostOperands>& inputs, const Source& out,
                               int64_t count) {
  alignas(64) std::byte blocks[kMostOperands + 1][kBlock * sizeof(int64_t)];
  const auto is_bool = [](ScalarType type) { return type == ScalarType::kBool; };
  // Bytes of bools may be anything, and sums of them are more than one.
  const bool fix_result = is_bool(plan.result) && !operation.to_bool;
  // What lies in memory as the loop takes it need not be copied, nor be cut into blocks.
  bool direct[kMostOperands + 1];
  bool all_direct = direct[kMostOperands] = out.type == plan.result && out.step == 1;
  for (size_t k = 0; k < plan.count; ++k) {
    direct[k] = inputs[k].type == plan.reads[k] && inputs[k].step == 1 && !is_bool(plan.reads[k]);
    all_direct = all_direct && direct[k];
  }
  const auto at = [](const Source& source, int64_t index) {
    return source.data + index * source.step * static_cast<int64_t>(element_size(source.type));
  };
  for (int64_t start = 0; start < count;) {
    int64_t n = all_direct ? count - start : std::min(kBlock, count - start);
    const bool whole = n >= kLoopStep;
    if (whole) n &= ~(kLoopStep - 1);
    const int64_t padded = whole ? n : kLoopStep;
    std::array<const void*, kMostOperands> in{};
    for (size_t k = 0; k < plan.count; ++k) {
      const Source& input = inputs[k];
      const std::byte* source = at(input, start);
      std::byte* block = blocks[k];
      in[k] = direct[k] && whole ? source : block;
      if (in[k] != block) continue;
      const size_t size = element_size(plan.reads[k]);
      if (input.step != 0) {
        read_block(input.type, source, input.step, n, plan.reads[k], block);
        repeat_last(size, block, n, padded);
      } else if (start == 0) {
        // What repeats is the same in every block, of which the first is the largest.
        read_block(input.type, source, 1, 1, plan.reads[k], block);
        gather(size, block, 0, padded, block);
      }
    }
    // Of an output, so not constant.
    std::byte* target = const_cast<std::byte*>(at(out, start));
    std::byte* to = direct[kMostOperands] && whole ? target : blocks[kMostOperands];
    plan.loop(operation.self, in.data(), to, padded);
    if (fix_result) read_block(ScalarType::kBool, to, 1, n, ScalarType::kBool, to);
    if (to != target) write_block(plan.result, to, n, out.type, target, out.step);
    start += n;
  }
}

// Reads a view's elements in row-major order, so many at a time.
class RowMajorReader {
 public:
  explicit RowMajorReader(const View& view) : view_(view) {
    for (size_t dim = 0; dim < view.sizes.size(); ++dim) {
      if (view.sizes[dim] == 1) continue;
      const int64_t size = view.sizes[dim], stride = view.strides[dim];
      if (rank_ > 0 && strides_[rank_ - 1] == stride * size) {
        sizes_[rank_ - 1] *= size;
        strides_[rank_ - 1] = stride;
      } else {
        sizes_[rank_] = size;
        strides_[rank_++] = stride;
      }
    }
    if (rank_ == 0) sizes_[rank_] = 1, strides_[rank_++] = 0;
    std::fill_n(index_.begin(), rank_, 0);
  }

  // Elements after which all come again; 0 if they do not.
  int64_t period() const { return rank_ == 2 && strides_[0] == 0 ? sizes_[1] : 0; }

  void read(int64_t count, std::byte* to) {
    const size_t size = element_size(view_.type), inner = rank_ - 1;
    while (count > 0) {
      const int64_t n = std::min(count, sizes_[inner] - index_[inner]);
      copy(size, view_.at(offset_), n, to);
      to += static_cast<size_t>(n) * size;
      count -= n;
      offset_ += n * strides_[inner];
      if ((index_[inner] += n) == sizes_[inner]) next_run(inner);
    }
  }

 private:
  [[gnu::noinline]] void copy(size_t size, const std::byte* from, int64_t count,
                              std::byte* to) const {
    const int64_t stride = strides_[rank_ - 1];
    switch (size) {
      case 1:
        return copy_as<uint8_t>(from, stride, count, to);
      case 2:
        return copy_as<uint16_t>(from, stride, count, to);
      case 4:
        return copy_as<uint32_t>(from, stride, count, to);
      default:
        return copy_as<uint64_t>(from, stride, count, to);
    }
  }
  template <typename T>
  static void copy_as(const std::byte* from, int64_t stride, int64_t count, std::byte* to) {
    const T* source = reinterpret_cast<const T*>(from);
    T* target = reinterpret_cast<T*>(to);
    if (stride == 0) {
      std::fill_n(target, count, *source);
    } else if (stride == 1) {
      for (int64_t i = 0; i < count; ++i) target[i] = source[i];
    } else {
      for (int64_t i = 0; i < count; ++i) target[i] = source[i * stride];
    }
  }
  void next_run(size_t dim) {
    while (true) {
      offset_ -= sizes_[dim] * strides_[dim];
      index_[dim] = 0;
      if (dim-- == 0) return;
      offset_ += strides_[dim];
      if (++index_[dim] < sizes_[dim]) return;
    }
  }

  const View& view_;
  std::array<int64_t, kMaxDims + 1> sizes_, strides_, index_;  // those below rank_
  size_t rank_ = 0;
  int64_t offset_ = 0;
};

// As run_rows(), for short runs: what does not lie as the result does is put in its order, a block
// at a time.
[[gnu::noinline]] void run_blocks(const Plan& plan, const Operation& operation,
                                  const std::array<View, kMostOperands>& inputs, const View& out) {
  alignas(64) std::byte blocks[kMostOperands][kBlock * sizeof(int64_t)];
  std::array<std::optional<RowMajorReader>, kMostOperands> readers;
  int64_t step = kBlock;
  size_t repeats = kMostOperands;  // the operand of which every block is like the first
  for (size_t k = 0; k < plan.count; ++k) {
    if (inputs[k].strides == out.strides) continue;
    readers[k].emplace(inputs[k]);
    const int64_t period = readers[k]->period();
    if (repeats < kMostOperands || period == 0 || period > kBlock) continue;
    repeats = k;
    step = kBlock / period * period;
  }
  const int64_t total = out.numel();
  for (int64_t start = 0; start < total; start += step) {
    const int64_t count = std::min(step, total - start);
    std::array<Source, kMostOperands> sources;
    for (size_t k = 0; k < plan.count; ++k) {
      const std::byte* data = readers[k] ? blocks[k] : inputs[k].at(start);
      sources[k] = {data, inputs[k].type, 1};
      if (readers[k] && (k != repeats || start == 0)) readers[k]->read(count, blocks[k]);
    }
    run_row(plan, operation, sources, {out.at(start), out.type, 1}, count);
  }
}

// Puts the dimensions of all in the order of the result's strides, the largest first.
void order_dims(std::span<View> inputs, View& out) {
  std::array<size_t, kMaxDims> order;
  const size_t rank = out.sizes.size();
  for (size_t i = 0; i < rank; ++i) {
    size_t at = i;
    for (; at > 0 && out.strides[order[at - 1]] < out.strides[i]; --at) order[at] = order[at - 1];
    order[at] = i;
  }
  const auto put = [&](View& view) {
    const Dims sizes = view.sizes, strides = view.strides;
    for (size_t i = 0; i < rank; ++i) {
      view.sizes[i] = sizes[order[i]], view.strides[i] = strides[order[i]];
    }
  };
  for (View& input : inputs) put(input);
  put(out);
}

void run_rows(const Plan& plan, const Operation& operation, std::array<View, kMostOperands>& inputs,
              View out) {
  const auto strides = [&](size_t k) { return k < plan.count ? &inputs[k].strides : &out.strides; };
  const Loop<kMostOperands + 1> walk(out.sizes, {&out.strides, strides(0), strides(1), strides(2)});
  constexpr int64_t kShort = 128;  // where run_row() takes longer to start than to compute
  if (walk.length() < kShort && walk.length() < out.numel()) {
    order_dims({inputs.data(), plan.count}, out);
    if (out.is_row_major()) return run_blocks(plan, operation, inputs, out);
  }
  walk.run([&](const auto& offsets, int64_t count, const auto& steps) {
    std::array<Source, kMostOperands> sources;
    for (size_t k = 0; k < plan.count; ++k) {
      sources[k] = {inputs[k].at(offsets[k + 1]), inputs[k].type, steps[k + 1]};
    }
    run_row(plan, operation, sources, {out.at(offsets[0]), out.type, steps[0]}, count);
  });
}

// Of operands of which none has to be walked over by dimension: the tensor that has the result's
// shape. Others lie as it does, or are one element. Null if there is none.
const Tensor* tensor_of_all(std::span<const Operand> operands, const Tensor& out,
                            ScalarType common) {
  const Tensor* most = nullptr;
  for (const auto& [tensor, number] : operands) {
    if (tensor == nullptr) continue;
    if (tensor->type() != common || !tensor->is_contiguous()) return nullptr;
    const bool more =
        most != nullptr && tensor->rank() == most->rank() && tensor->numel() > most->numel();
    if (most == nullptr || tensor->rank() > most->rank() || more) most = tensor;
  }
  if (most == nullptr || most->numel() == 0) return nullptr;
  for (const auto& [tensor, number] : operands) {
    if (tensor == nullptr || tensor == most) continue;
    const bool is_like = tensor->numel() == most->numel() &&
                         std::ranges::equal(tensor->sizes(), most->sizes().last(tensor->rank()));
    if (tensor == &out || !(is_like || tensor->numel() == 1)) return nullptr;
  }
  return most;
}

// As run_rows() with the views that prepare() makes, which takes longer than a small operator.
// False if the operands are not for it.
bool run_flat(const Operation& operation, std::span<const Operand> operands, Tensor* out,
              ElementwiseTypes types, Status* status) {
  const ScalarType common = types.common;
  if (operation.condition || common == ScalarType::kBool || !is_computable(common) ||
      out->type() != types.result || !out->is_contiguous()) {
    return false;
  }
  const ScalarType read = reading_type(operation, common, out->type());
  const Tensor* most = tensor_of_all(operands, *out, common);
  if (most == nullptr || read != common || out->rank() != most->rank()) return false;
  *status = out->resize(most->sizes());
  if (!status->ok()) return true;
  Plan plan;
  plan.count = operands.size();
  plan.loop = operation.loop(read);
  plan.reads.fill(read);
  plan.result = operation.to_bool ? ScalarType::kBool : read;
  std::array<ScalarView, kMostOperands> scalars;
  std::array<Source, kMostOperands> sources;
  for (size_t k = 0; k < plan.count; ++k) {
    const Tensor* tensor = operands[k].tensor;
    if (tensor != nullptr) {
      sources[k] = {tensor->data<std::byte>(), common, tensor->numel() == most->numel() ? 1 : 0};
      continue;
    }
    scalars[k] = ScalarView(operands[k].number);
    View view = scalars[k].view();
    if (narrows(operation, common)) view = scalars[k].narrow(view, common);
    sources[k] = {view.data, view.type, 0};
  }
  run_row(plan, operation, sources, {out->data<std::byte>(), out->type(), 1}, out->numel());
  return true;
}

// Of operands that lie and are typed anyhow.
Status run_views(KernelContext& context, std::span<const Operand> operands, Tensor* out,
                 const Operation& operation, ElementwiseTypes types) {
  std::array<ScalarView, kMostOperands> scalars;
  for (size_t k = 0; k < operands.size(); ++k) scalars[k] = ScalarView(operands[k].number);
  std::array<View, kMostOperands> inputs;
  EDGEWISE_RETURN_IF_ERROR(prepare(context, operands, scalars, inputs, out, types, operation));
  const ScalarType read = reading_type(operation, types.common, out->type());
  Plan plan;
  plan.count = operands.size();
  plan.loop = operation.loop(read);
  plan.reads.fill(read);
  if (operation.condition) {
    plan.reads[0] = ScalarType::kByte;
    if (inputs[0].type == ScalarType::kBool) inputs[0].type = ScalarType::kByte;
  }
  plan.result = operation.to_bool ? ScalarType::kBool : read;
  run_rows(plan, operation, inputs, view_of(*out));
  return {};
}

}  // namespace

ElementwiseTypes elementwise_types(std::span<const Operand> operands, ResultRule rule) {
  TypePromotion promotion;
  for (const Operand& operand : operands) {
    if (operand.tensor) {
      promotion.add(*operand.tensor);
    } else {
      promotion.add(operand.number);
    }
  }
  const ScalarType promoted = promotion.result();
  switch (rule) {
    case ResultRule::kFloating:
      return {to_floating(promoted), to_floating(promoted)};
    case ResultRule::kBool:
      return {promoted, ScalarType::kBool};
    default:
      return {promoted, promoted};
  }
}

Status run_operation(KernelContext& context, std::span<const Operand> operands, Tensor* out,
                     const Operation& operation, ElementwiseTypes types) {
  if (!context.ok()) return context.status();
  Status status;
  if (run_flat(operation, operands, out, types, &status)) {
    if (!status.ok()) return context.fail(status.code(), "output: %s", status.message().c_str());
  } else {
    EDGEWISE_RETURN_IF_ERROR(run_views(context, operands, out, operation, types));
  }
  if (operation.failure && *operation.failure) {
    return context.fail(Code::kInvalidArgument, "%s", *operation.failure);
  }
  return context.status();
}

Status run_operation(KernelContext& context, std::span<const Operand> operands, Tensor* out,
                     const Operation& operation, ResultRule rule) {
  if (!context.ok()) return context.status();
  return run_operation(context, operands, out, operation, elementwise_types(operands, rule));
}

Status run_unary(KernelContext& context, const Operation& operation, ResultRule rule) {
  const std::array operands{tensor_operand(context, 0)};
  return run_operation(context, operands, elementwise_output(context, 1), operation, rule);
}

Status run_binary(KernelContext& context, const Operation& operation, ResultRule rule,
                  bool with_scalar) {
  const std::array operands{tensor_operand(context, 0),
                            with_scalar ? scalar_operand(context, 1) : tensor_operand(context, 1)};
  return run_operation(context, operands, elementwise_output(context, 2), operation, rule);
}

}  // namespace HWY_NAMESPACE
}  // namespace edgewise
