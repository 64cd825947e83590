// llama::gated_delta_rule, under ExecuTorch's name and schema: linear attention whose state a
// program keeps from call to call.
//
// query [B, heads, T, K]; key [B, key heads, T, K]; value [B, key heads, T, V]; decay
// [B, key heads, T, K], or [B, key heads, T] for all of a token's keys; beta [B, key heads, T];
// states [B, key heads, K, V]. heads / key heads heads of queries that follow one another read one
// state.
#include <atomic>

#include "cpu_dispatch.h"
#include "delta_rule.h"
#include "kernel_status.h"
#include "view.h"

namespace edgewise {
inline namespace HWY_NAMESPACE {
namespace {

struct DeltaCall {
  const Tensor *query, *key, *value, *decay, *beta, *initial_state;
};

const float* data_of(const Tensor& tensor) {
  return reinterpret_cast<const float*>(view_of(tensor).data);
}

float* data_of(Tensor& tensor) { return reinterpret_cast<float*>(view_of(tensor).data); }

Status check_floats(const Tensor& tensor, const char* name, std::span<const int64_t> sizes) {
  if (tensor.type() == ScalarType::kFloat && std::ranges::equal(tensor.sizes(), sizes) &&
      view_of(tensor).is_row_major()) {
    return {};
  }
  return error(Code::kInvalidArgument,
               "%s must be float32 in order, of the sizes of the query and the value; got %s", name,
               tensor.describe().c_str());
}

Status check_sizes(const DeltaCall& call) {
  if (call.query->rank() != 4 || call.key->rank() != 4 || call.value->rank() != 4) {
    return error(Code::kInvalidArgument,
                 "query, key and value must have four dimensions; got %s, %s and %s",
                 call.query->describe().c_str(), call.key->describe().c_str(),
                 call.value->describe().c_str());
  }
  const int64_t batch = call.query->size(0), heads = call.query->size(1);
  const int64_t tokens = call.query->size(2), depth = call.query->size(3);
  const int64_t key_heads = call.key->size(1), width = call.value->size(3);
  if (key_heads == 0 || heads % key_heads != 0) {
    return error(Code::kInvalidArgument,
                 "heads of queries must be a multiple of those of keys; got %lld and %lld",
                 static_cast<long long>(heads), static_cast<long long>(key_heads));
  }
  const int64_t keys[] = {batch, key_heads, tokens, depth};
  const int64_t values[] = {batch, key_heads, tokens, width};
  const int64_t states[] = {batch, key_heads, depth, width};
  const std::span<const int64_t> each_token = std::span(keys).first(3);
  const bool decays_by_key = call.decay->rank() == 4;
  EDGEWISE_RETURN_IF_ERROR(
      check_floats(*call.query, "query", std::array{batch, heads, tokens, depth}));
  EDGEWISE_RETURN_IF_ERROR(check_floats(*call.key, "key", keys));
  EDGEWISE_RETURN_IF_ERROR(check_floats(*call.value, "value", values));
  EDGEWISE_RETURN_IF_ERROR(
      check_floats(*call.decay, "decay", decays_by_key ? std::span(keys) : each_token));
  EDGEWISE_RETURN_IF_ERROR(check_floats(*call.beta, "beta", each_token));
  return check_floats(*call.initial_state, "initial_state", states);
}

Status run(const DeltaCall& call, Tensor* out, Tensor* final_state, Workers* workers) {
  const int64_t batch = call.query->size(0), heads = call.query->size(1);
  const int64_t tokens = call.query->size(2), depth = call.query->size(3);
  const int64_t key_heads = call.key->size(1), width = call.value->size(3);
  const int64_t shared = heads / key_heads;
  const bool decays_by_key = call.decay->rank() == 4;
  const int64_t blocks = (width + kDeltaColumns - 1) / kDeltaColumns;
  constexpr int64_t kLeastWork = 16384;  // that threads share
  if (batch * key_heads * tokens * depth * width < kLeastWork) workers = nullptr;
  std::atomic<bool> has_failed = false;
  for_each(workers, static_cast<size_t>(batch * key_heads * blocks), [&](size_t task) {
    const int64_t block = static_cast<int64_t>(task) % blocks;
    const int64_t head = static_cast<int64_t>(task) / blocks;
    Scratch<float> state;
    if (!state.reserve(depth * kDeltaColumns).ok()) {
      has_failed = true;
      return;
    }
    const DeltaRule rule{
        .tokens = tokens,
        .depth = depth,
        .width = width,
        .queries = shared,
        .query = data_of(*call.query) + head * shared * tokens * depth,
        .key = data_of(*call.key) + head * tokens * depth,
        .value = data_of(*call.value) + head * tokens * width,
        .decay = data_of(*call.decay) + head * tokens * (decays_by_key ? depth : 1),
        .decays_by_key = decays_by_key,
        .beta = data_of(*call.beta) + head * tokens,
        .initial_state = data_of(*call.initial_state) + head * depth * width,
        .out = data_of(*out) + head * shared * tokens * width,
        .final_state = data_of(*final_state) + head * depth * width,
    };
    run_delta_rule(rule, block * kDeltaColumns, state.data());
  });
  if (has_failed) return error(Code::kOutOfMemory, "there is no working memory");
  return {};
}

Status gated_delta_rule(KernelContext& context) {
  const DeltaCall call{context.tensor(0), context.tensor(1), context.tensor(2),
                       context.tensor(3), context.tensor(4), context.tensor(5)};
  Tensor* out = output(context, 6);
  Tensor* final_state = output(context, 7, 5);  // each part is read before it is written
  if (!context.ok()) return context.status();
  EDGEWISE_TRY(check_sizes(call));
  const int64_t results[] = {call.query->size(0), call.query->size(1), call.query->size(2),
                             call.value->size(3)};
  EDGEWISE_TRY(out->resize(results));
  EDGEWISE_TRY(final_state->resize(call.initial_state->sizes()));
  EDGEWISE_TRY(check_floats(*out, "out", results));
  EDGEWISE_TRY(check_floats(*final_state, "final_state_out", call.initial_state->sizes()));
  EDGEWISE_TRY(run(call, out, final_state, context.workers()));
  return context.status();
}

constexpr KernelEntry kKernels[] = {
    {"llama::gated_delta_rule.out", 8, gated_delta_rule},
    // ExecuTorch 1.4's name.
    {"llama::channelwise_gated_delta_rule.out", 8, gated_delta_rule},
};
const KernelTable table(kEveryLevel, kSelected<kKernels>);

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace edgewise
