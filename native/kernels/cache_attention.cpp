// Attention over a cache of keys and values: llama::update_cache, update_cache_with_indices,
// custom_sdpa, custom_quantized_sdpa and sdpa_with_kv_cache, under ExecuTorch's names and schemas.
//
// query, key, value [B, S, heads, D]; caches [B, context, key heads, D]. Only the part of a cache
// that some query sees is read. Here caches may be of another floating type than the rest.
// Quantized ones are int8, queries, too, with a scale and a zero point for each D of them.
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>

#include "attend.h"
#include "cpu_dispatch.h"
#include "indices.h"
#include "kernel_status.h"
#include "position_attention.h"
#include "view.h"

namespace edgewise {
inline namespace HWY_NAMESPACE {
namespace {

constexpr int64_t kQueryBlock = 64;  // queries that read keys together

Status check_four_dims(const Tensor& tensor, const char* name) {
  if (tensor.rank() == 4 && view_of(tensor).is_row_major()) return {};
  return error(Code::kInvalidArgument, "%s must have four dimensions in order; got %s", name,
               tensor.describe().c_str());
}

bool is_cache_type(ScalarType type) { return is_floating(type) && type != ScalarType::kDouble; }

Status check_position(int64_t context, int64_t count, int64_t start) {
  if (start >= 0 && count <= context && start <= context - count) return {};
  return error(Code::kInvalidArgument,
               "the cache holds %lld positions; got %lld from position %lld on",
               static_cast<long long>(context), static_cast<long long>(count),
               static_cast<long long>(start));
}

// Where in the cache the rows of `value` go.
Status cache_part(const Tensor& value, Tensor* cache, int64_t start, View* part) {
  EDGEWISE_RETURN_IF_ERROR(check_four_dims(value, "value"));
  EDGEWISE_RETURN_IF_ERROR(check_four_dims(*cache, "cache"));
  bool fits = cache->type() == value.type() ||
              (is_cache_type(cache->type()) && is_cache_type(value.type()));
  for (const size_t dim : {0, 2, 3}) fits = fits && cache->size(dim) == value.size(dim);
  if (!fits) {
    return error(Code::kInvalidArgument, "a cache must fit what it takes; got %s for %s",
                 cache->describe().c_str(), value.describe().c_str());
  }
  EDGEWISE_RETURN_IF_ERROR(check_position(cache->size(1), value.size(1), start));
  EDGEWISE_RETURN_IF_ERROR(cache->resize(cache->sizes()));  // refuses constants
  *part = view_of(*cache).narrow(1, start, value.size(1));
  return {};
}

// Of an int8 tensor [..., D]: float32 and int8 [..., 1].
struct Parameters {
  const Tensor* zero_points = nullptr;
  const Tensor* scales = nullptr;

  // Row `row` of D elements from `data` on, as real numbers.
  void dequantize(const std::byte* data, int64_t row, int64_t depth, float* to) const {
    const auto* from = reinterpret_cast<const int8_t*>(data);
    const float scale = scales->data<const float>()[row];
    const int8_t zero = zero_points->data<const int8_t>()[row];
    for (int64_t d = 0; d < depth; ++d) to[d] = static_cast<float>(from[d] - zero) * scale;
  }
};

struct Call {
  const Tensor* query = nullptr;
  const Tensor* keys = nullptr;
  const Tensor* values = nullptr;
  int64_t start = 0;
  const Tensor* mask = nullptr;
  bool is_causal = false;
  std::optional<double> scale;
  Tensor* out = nullptr;
  // Of int8 tensors.
  bool is_quantized = false;
  Parameters of_query, of_keys, of_values;
  size_t position_dim = 1;  // heads are the other one of 1 and 2
};

class CacheAttention {
 public:
  explicit CacheAttention(const Call& call) : call_(call) {}

  Status prepare();
  Status run(Workers* workers);

 private:
  Status check_sizes() const;
  Status check_types() const;
  Status read_mask();
  void load_row(const Tensor& from, const Parameters& parameters, int64_t offset, float* to) const;
  Status run_position(int64_t batch, Workers* workers) const;
  Status run_task(int64_t task) const;
  void attend_to_all(const Attention& attention, int64_t batch, int64_t key_head, float* memory,
                     const AttentionState& state) const;

  const Call& call_;
  ScalarType type_ = ScalarType::kFloat, cache_type_ = ScalarType::kFloat;
  int64_t batches_ = 0, positions_ = 0, heads_ = 0, key_heads_ = 0, depth_ = 0, context_ = 0;
  int64_t filled_ = 0;  // keys that some query sees
  float scale_ = 1;
  // The queries of a block of positions to one head of keys make a task.
  int64_t blocks_ = 1, block_ = 1;
  Scratch<float> mask_;
};

Status check_parameters(const Tensor& of, const Parameters& parameters) {
  for (const Tensor* tensor : {parameters.scales, parameters.zero_points}) {
    const ScalarType type = tensor == parameters.scales ? ScalarType::kFloat : ScalarType::kChar;
    bool fits = tensor->rank() == 4 && tensor->type() == type && tensor->size(3) == 1 &&
                view_of(*tensor).is_row_major();
    for (size_t dim = 0; fits && dim < 3; ++dim) fits = tensor->size(dim) == of.size(dim);
    if (!fits) {
      return error(Code::kInvalidArgument,
                   "scales must be float32 and zero points int8, one for each row; got %s for %s",
                   tensor->describe().c_str(), of.describe().c_str());
    }
  }
  return {};
}

Status CacheAttention::check_types() const {
  if (call_.is_quantized) {
    if (type_ != ScalarType::kChar || cache_type_ != type_) {
      return error(Code::kInvalidArgument, "queries and caches must be int8; got %s and %s",
                   call_.query->describe().c_str(), call_.keys->describe().c_str());
    }
    EDGEWISE_RETURN_IF_ERROR(check_parameters(*call_.query, call_.of_query));
    EDGEWISE_RETURN_IF_ERROR(check_parameters(*call_.keys, call_.of_keys));
    return check_parameters(*call_.values, call_.of_values);
  }
  if (is_cache_type(type_) && is_cache_type(cache_type_)) return {};
  return error(Code::kInvalidArgument,
               "queries and caches must be float32, float16 or bfloat16; got %s and %s",
               call_.query->describe().c_str(), call_.keys->describe().c_str());
}

Status CacheAttention::check_sizes() const {
  const bool fits = std::ranges::equal(call_.keys->sizes(), call_.values->sizes()) &&
                    call_.keys->size(0) == batches_ && call_.keys->size(3) == depth_ &&
                    call_.keys->type() == call_.values->type();
  if (!fits) {
    return error(Code::kInvalidArgument,
                 "caches must be of one type, all of one batch and depth; got %s, %s and %s",
                 call_.query->describe().c_str(), call_.keys->describe().c_str(),
                 call_.values->describe().c_str());
  }
  if (key_heads_ == 0 || heads_ % key_heads_ != 0) {
    return error(Code::kInvalidArgument,
                 "heads of queries must be a multiple of those of keys; got %lld and %lld",
                 static_cast<long long>(heads_), static_cast<long long>(key_heads_));
  }
  // With a mask alone the start says nothing.
  const bool has_start = !call_.is_quantized || call_.mask == nullptr || call_.is_causal;
  return has_start ? check_position(context_, positions_, call_.start) : Status{};
}

Status CacheAttention::read_mask() {
  const View mask = view_of(*call_.mask);
  if (mask.sizes.size() != 2 || !is_floating(mask.type) || mask.sizes[0] != positions_ ||
      mask.sizes[1] > context_ || !mask.is_row_major()) {
    return error(Code::kInvalidArgument,
                 "a mask must hold real numbers in order, one for each query and key; got %s",
                 call_.mask->describe().c_str());
  }
  filled_ = mask.sizes[1];
  EDGEWISE_RETURN_IF_ERROR(mask_.reserve(mask.numel()));
  load<float>(mask.type, mask.data, 1, mask.numel(), mask_.data());
  return {};
}

Status CacheAttention::prepare() {
  EDGEWISE_RETURN_IF_ERROR(check_four_dims(*call_.query, "query"));
  EDGEWISE_RETURN_IF_ERROR(check_four_dims(*call_.keys, "the cache of keys"));
  EDGEWISE_RETURN_IF_ERROR(check_four_dims(*call_.values, "the cache of values"));
  const size_t head_dim = 3 - call_.position_dim;
  batches_ = call_.query->size(0), positions_ = call_.query->size(call_.position_dim);
  heads_ = call_.query->size(head_dim), depth_ = call_.query->size(3);
  key_heads_ = call_.keys->size(head_dim), context_ = call_.keys->size(call_.position_dim);
  type_ = call_.query->type(), cache_type_ = call_.keys->type();
  EDGEWISE_RETURN_IF_ERROR(check_types());
  EDGEWISE_RETURN_IF_ERROR(check_sizes());
  if (call_.mask == nullptr) {
    filled_ = call_.start + positions_;
  } else {
    EDGEWISE_RETURN_IF_ERROR(read_mask());
  }
  EDGEWISE_RETURN_IF_ERROR(call_.out->resize(call_.query->sizes()));
  const ScalarType made = call_.is_quantized ? ScalarType::kFloat : type_;
  if (call_.out->type() != made || !view_of(*call_.out).is_row_major()) {
    return error(Code::kInvalidArgument, "the result must be like the query; got %s",
                 call_.out->describe().c_str());
  }
  scale_ =
      static_cast<float>(call_.scale ? *call_.scale : 1 / std::sqrt(static_cast<double>(depth_)));
  block_ = std::max<int64_t>(1, kQueryBlock / (heads_ / key_heads_));
  blocks_ = (positions_ + block_ - 1) / block_;
  return {};
}

Status CacheAttention::run(Workers* workers) {
  if (call_.query->numel() == 0) return {};
  constexpr int64_t kLeastWork = 16384;  // that threads share
  if (filled_ * call_.query->numel() < kLeastWork) workers = nullptr;
  const bool reads_cache = cache_type_ == ScalarType::kFloat || cache_type_ == ScalarType::kHalf;
  if (positions_ == 1 && type_ == ScalarType::kFloat && reads_cache && can_attend_heads(depth_)) {
    for (int64_t batch = 0; batch < batches_; ++batch) {
      EDGEWISE_RETURN_IF_ERROR(run_position(batch, workers));
    }
    return {};
  }
  std::atomic<bool> has_failed = false;
  for_each(workers, static_cast<size_t>(batches_ * key_heads_ * blocks_), [&](size_t task) {
    if (!run_task(static_cast<int64_t>(task)).ok()) has_failed = true;
  });
  if (has_failed) return error(Code::kOutOfMemory, "there is no working memory");
  return {};
}

Status CacheAttention::run_position(int64_t batch, Workers* workers) const {
  const View keys = view_of(*call_.keys), values = view_of(*call_.values);
  const int64_t begin = batch * heads_ * depth_;
  const int64_t offset = batch * call_.keys->size(1) * key_heads_ * depth_;
  return attend_position(
      {.queries = reinterpret_cast<const float*>(view_of(*call_.query).at(begin)),
       .cache_type = cache_type_,
       .keys = keys.at(offset),
       .values = values.at(offset),
       .mask = call_.mask == nullptr ? nullptr : mask_.data(),
       .heads = heads_,
       .key_heads = key_heads_,
       .depth = depth_,
       .filled = call_.is_causal ? std::min(call_.start + 1, filled_) : filled_,
       .scale = scale_,
       .out = reinterpret_cast<float*>(view_of(*call_.out).at(begin))},
      workers);
}

Status CacheAttention::run_task(int64_t task) const {
  const int64_t key_head = task % key_heads_;
  const int64_t batch = task / key_heads_ % batches_;
  // Late positions see most keys: theirs first, so that no thread begins with them at the end.
  const int64_t first = (blocks_ - 1 - task / key_heads_ / batches_) * block_;
  const int64_t shared = heads_ / key_heads_;
  const int64_t rows = std::min(block_, positions_ - first) * shared;

  Scratch<float> memory;
  const int64_t block = std::min(kQueryBlock, rows) * depth_;
  const int64_t transposed = block < kTransposedFrom * depth_ ? 0 : kKeyBlock * depth_;
  const int64_t converted = cache_type_ == ScalarType::kFloat ? 0 : 2 * kKeyBlock * depth_;
  EDGEWISE_RETURN_IF_ERROR(memory.reserve(2 * block + transposed + converted));
  float* queries = memory.data();
  float* result = queries + block;
  const View target = view_of(*call_.out);
  for (int64_t done = 0; done < rows; done += kQueryBlock) {
    const int64_t count = std::min(kQueryBlock, rows - done);
    int64_t limits[kQueryBlock];
    const float* mask_rows[kQueryBlock];
    int64_t offsets[kQueryBlock];
    float most[kQueryBlock], total[kQueryBlock];
    for (int64_t row = 0; row < count; ++row) {
      const int64_t position = first + (done + row) / shared;
      const int64_t head = key_head * shared + (done + row) % shared;
      offsets[row] = call_.position_dim == 1
                         ? ((batch * positions_ + position) * heads_ + head) * depth_
                         : ((batch * heads_ + head) * positions_ + position) * depth_;
      limits[row] = call_.is_causal ? std::min(call_.start + position + 1, filled_) : filled_;
      mask_rows[row] = call_.mask == nullptr ? nullptr : mask_.data() + position * filled_;
      most[row] = -std::numeric_limits<float>::infinity();
      total[row] = 0;
      float* query = queries + row * depth_;
      load_row(*call_.query, call_.of_query, offsets[row], query);
      for (int64_t d = 0; d < depth_; ++d) query[d] *= scale_;
    }
    std::fill_n(result, count * depth_, 0.0f);
    const Attention attention{queries, count, depth_, limits,
                              call_.mask == nullptr ? nullptr : mask_rows};
    attend_to_all(attention, batch, key_head, result + block, {most, total, result});
    for (int64_t row = 0; row < count; ++row) {
      const float factor = total[row] > 0 ? 1 / total[row] : 0.0f;
      for (int64_t d = 0; d < depth_; ++d) result[row * depth_ + d] *= factor;
      store<float>(target.type, result + row * depth_, depth_, target.at(offsets[row]), 1);
    }
  }
  return {};
}

// A row of D elements at `offset`.
void CacheAttention::load_row(const Tensor& from, const Parameters& parameters, int64_t offset,
                              float* to) const {
  const std::byte* data =
      from.data<const std::byte>() + offset * static_cast<int64_t>(element_size(from.type()));
  if (call_.is_quantized) {
    parameters.dequantize(data, offset / depth_, depth_, to);
  } else {
    load<float>(from.type(), data, 1, depth_, to);
  }
}

void CacheAttention::attend_to_all(const Attention& attention, int64_t batch, int64_t key_head,
                                   float* memory, const AttentionState& state) const {
  float* converted = memory + (attention.count < kTransposedFrom ? 0 : kKeyBlock * depth_);
  const int64_t end = *std::max_element(attention.limits, attention.limits + attention.count);
  const View keys = view_of(*call_.keys), values = view_of(*call_.values);
  const bool by_position = call_.position_dim == 1;
  const int64_t step = by_position ? key_heads_ * depth_ : depth_;
  const int64_t begin = by_position ? (batch * context_ * key_heads_ + key_head) * depth_
                                    : (batch * key_heads_ + key_head) * context_ * depth_;
  for (int64_t first = 0; first < end; first += kKeyBlock) {
    const int64_t count = std::min(kKeyBlock, end - first);
    const int64_t offset = begin + first * step;
    if (cache_type_ == ScalarType::kFloat) {
      attend(attention, reinterpret_cast<const float*>(keys.at(offset)),
             reinterpret_cast<const float*>(values.at(offset)), step, first, count, memory, state);
      continue;
    }
    float* other = converted + kKeyBlock * depth_;
    for (int64_t j = 0; j < count; ++j) {
      load_row(*call_.keys, call_.of_keys, offset + j * step, converted + j * depth_);
      load_row(*call_.values, call_.of_values, offset + j * step, other + j * depth_);
    }
    attend(attention, converted, other, depth_, first, count, memory, state);
  }
}

Status run_attention(KernelContext& context, const Call& call) {
  CacheAttention attention(call);
  EDGEWISE_TRY(attention.prepare());
  EDGEWISE_TRY(attention.run(context.workers()));
  return context.status();
}

Status update_cache(KernelContext& context) {
  const Tensor* value = context.tensor(0);
  Tensor* cache = context.out(1);
  const int64_t start = context.integer(2);
  if (!context.ok()) return context.status();
  View part;
  EDGEWISE_TRY(cache_part(*value, cache, start, &part));
  EDGEWISE_TRY(assign(part, view_of(*value)));
  return context.status();
}

// Row s of `value` goes to the position that `indices` [B, S] gives; `start_pos` says nothing.
Status update_cache_with_indices(KernelContext& context) {
  const Tensor* value = context.tensor(0);
  Tensor* cache = context.out(1);
  const Tensor* indices = context.tensor(3);
  if (!context.ok()) return context.status();
  View all;
  EDGEWISE_TRY(cache_part(*value, cache, 0, &all));
  const bool fits = indices->rank() == 2 && indices->size(0) == value->size(0) &&
                    indices->size(1) == value->size(1) && indices->type() == ScalarType::kLong &&
                    view_of(*indices).is_row_major();
  if (!fits) {
    return context.fail(Code::kInvalidArgument,
                        "indices must be int64, one for each position; got %s for %s",
                        indices->describe().c_str(), value->describe().c_str());
  }
  Indices wanted;
  EDGEWISE_TRY(wanted.read(*indices, cache->size(1), Indices::Negative::kRefused));
  const View from = view_of(*value), to = view_of(*cache);
  const int64_t positions = value->size(1);
  for (int64_t i = 0; i < wanted.count(); ++i) {
    const int64_t batch = i / positions;
    EDGEWISE_TRY(assign(to.narrow(0, batch, 1).narrow(1, wanted[i], 1),
                        from.narrow(0, batch, 1).narrow(1, i % positions, 1)));
  }
  return context.status();
}

// Reads the arguments from attn_mask on, which the operators share.
Call read_call(KernelContext& context, size_t mask, size_t out) {
  Call call;
  call.query = context.tensor(0);
  call.mask = context.optional_tensor(mask);
  static_cast<void>(context.number(mask + 1));  // dropout: not when a model is used
  call.is_causal = context.boolean(mask + 2);
  call.scale = context.optional_number(mask + 3);
  call.out = output(context, out);
  return call;
}

Status custom_sdpa(KernelContext& context) {
  Call call = read_call(context, 4, 8);
  call.keys = context.tensor(1);
  call.values = context.tensor(2);
  call.start = context.integer(3);
  return context.ok() ? run_attention(context, call) : context.status();
}

Status custom_quantized_sdpa(KernelContext& context) {
  Call call = read_call(context, 4, 15);
  call.keys = context.tensor(1);
  call.values = context.tensor(2);
  call.start = context.integer(3);
  call.is_quantized = true;
  call.of_query = {context.tensor(8), context.tensor(9)};
  call.of_keys = {context.tensor(10), context.tensor(11)};
  call.of_values = {context.tensor(12), context.tensor(13)};
  call.position_dim = context.boolean(14) ? 2 : 1;
  return context.ok() ? run_attention(context, call) : context.status();
}

Status sdpa_with_kv_cache(KernelContext& context) {
  Call call = read_call(context, 7, 11);
  const Tensor* key = context.tensor(1);
  const Tensor* value = context.tensor(2);
  Tensor* key_cache = context.out(3);
  Tensor* value_cache = context.out(4);
  call.start = context.integer(5);
  const int64_t length = context.integer(6);
  if (!context.ok()) return context.status();
  call.keys = key_cache;
  call.values = value_cache;
  View keys, values;
  EDGEWISE_TRY(cache_part(*key, key_cache, call.start, &keys));
  EDGEWISE_TRY(cache_part(*value, value_cache, call.start, &values));
  if (length != key->size(1) || length != value->size(1)) {
    return context.fail(Code::kInvalidArgument,
                        "seq_len must be the number of keys and values; got %lld for %s and %s",
                        static_cast<long long>(length), key->describe().c_str(),
                        value->describe().c_str());
  }
  EDGEWISE_TRY(assign(keys, view_of(*key)));
  EDGEWISE_TRY(assign(values, view_of(*value)));
  return run_attention(context, call);
}

constexpr KernelEntry kKernels[] = {
    {"llama::update_cache.out", 4, update_cache},
    {"llama::update_cache_with_indices.out", 5, update_cache_with_indices},
    {"llama::custom_sdpa.out", 9, custom_sdpa},
    {"llama::custom_quantized_sdpa.out", 16, custom_quantized_sdpa},
    {"llama::sdpa_with_kv_cache.out", 12, sdpa_with_kv_cache},
};
const KernelTable table(kEveryLevel, kSelected<kKernels>);

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace edgewise
