// Random numbers: uniform, normal, integers, permutations, dropout. Every call of a kernel
// takes the next stream of a counter that starts at 0 in each process, so that a program that
// runs alone gives the same numbers every time. They are not those of PyTorch.
#include <atomic>
#include <cmath>

#include "compute_tensor.h"
#include "cpu_dispatch.h"

namespace edgewise {
inline namespace HWY_NAMESPACE {
namespace {

class Random {
 public:
  Random() : state_((next_stream_++ + 1) * 0xD1342543DE82EF95u) {}

  // A step of SplitMix64.
  uint64_t bits() {
    uint64_t z = state_ += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }
  // In [0, 1), a multiple of 2^-53; `digits` fewer for types that would round up to 1.
  double uniform(int digits = 53) {
    return std::ldexp(static_cast<double>(bits() >> (64 - digits)), -digits);
  }
  double normal() {
    const double radius = std::sqrt(-2.0 * std::log(1.0 - uniform()));
    return radius * std::cos(6.283185307179586477 * uniform());
  }
  // A uniform integer in [0, n).
  uint64_t below(uint64_t n) { return high_half(bits(), n); }

 private:
  // Of the product's 128 bits, which 32-bit CPUs have no type for.
  static uint64_t high_half(uint64_t a, uint64_t b) {
    const uint64_t a_low = a & 0xFFFFFFFFu, a_high = a >> 32;
    const uint64_t b_low = b & 0xFFFFFFFFu, b_high = b >> 32;
    const uint64_t first = a_high * b_low + (a_low * b_low >> 32);
    const uint64_t second = a_low * b_high + (first & 0xFFFFFFFFu);
    return a_high * b_high + (first >> 32) + (second >> 32);
  }

  static inline std::atomic<uint64_t> next_stream_{0};
  uint64_t state_;
};

int digits_of(ScalarType type) {
  switch (type) {
    case ScalarType::kHalf:
      return 11;
    case ScalarType::kBFloat16:
      return 8;
    case ScalarType::kFloat:
      return 24;
    default:
      return 53;
  }
}

// Fills `out`, resized before, with what `make` gives.
template <typename C, typename F>
Status generate(KernelContext& context, Tensor* out, F&& make) {
  ComputeOutput<C> y;
  EDGEWISE_TRY(y.prepare(view_of(*out), true));
  for (int64_t i = 0; i < out->numel(); ++i) y.data[i] = make();
  return finish(context, y.finish());
}

Status sample(KernelContext& context, std::span<const int64_t> shape, bool normal, Tensor* out) {
  EDGEWISE_RETURN_IF_ERROR(check_floating(context, out));
  Dims sizes;
  EDGEWISE_TRY(to_sizes(shape, sizes));
  EDGEWISE_TRY(out->resize(sizes));
  Random random;
  const int digits = digits_of(out->type());
  return generate<double>(context, out,
                          [&] { return normal ? random.normal() : random.uniform(digits); });
}

template <bool kNormal>
Status of_size(KernelContext& context) {
  const std::vector<int64_t> sizes = context.int_list(0);
  Tensor* out = output(context, 1);
  if (!context.ok()) return context.status();
  return sample(context, sizes, kNormal, out);
}

template <bool kNormal>
Status like(KernelContext& context) {
  const Tensor* self = context.tensor(0);
  Tensor* out = output(context, 2);
  if (!context.ok()) return context.status();
  return sample(context, self->sizes(), kNormal, out);
}

Status integers(KernelContext& context, int64_t low, int64_t high, size_t size_index) {
  const std::vector<int64_t> shape = context.int_list(size_index);
  Tensor* out = output(context, size_index + 1);
  if (!context.ok()) return context.status();
  if (low >= high || !is_computable(out->type())) {
    return context.fail(Code::kInvalidArgument, "low is less than high; got %lld and %lld",
                        static_cast<long long>(low), static_cast<long long>(high));
  }
  Dims sizes;
  EDGEWISE_TRY(to_sizes(shape, sizes));
  EDGEWISE_TRY(out->resize(sizes));
  Random random;
  const uint64_t range = static_cast<uint64_t>(high) - static_cast<uint64_t>(low);
  return generate<int64_t>(
      context, out, [&] { return wrap_add(low, static_cast<int64_t>(random.below(range))); });
}

Status randint(KernelContext& context) { return integers(context, 0, context.integer(0), 1); }
Status randint_low(KernelContext& context) {
  return integers(context, context.integer(0), context.integer(1), 2);
}

Status randperm(KernelContext& context) {
  const int64_t n = context.integer(0);
  Tensor* out = output(context, 1);
  if (!context.ok()) return context.status();
  Dims sizes;
  EDGEWISE_TRY(to_sizes(std::array{n}, sizes));
  EDGEWISE_TRY(out->resize(sizes));
  Random random;
  ComputeOutput<int64_t> y;
  EDGEWISE_TRY(y.prepare(view_of(*out), true));
  for (int64_t i = 0; i < n; ++i) y.data[i] = i;
  for (int64_t i = n - 1; i > 0; --i) {
    std::swap(y.data[i], y.data[random.below(static_cast<uint64_t>(i) + 1)]);
  }
  return finish(context, y.finish());
}

Status native_dropout(KernelContext& context) {
  const Tensor* self = context.tensor(0);
  const double p = context.number(1);
  const bool train = context.optional_boolean(2).value_or(true);
  Tensor* out = output(context, 3);
  Tensor* mask = output(context, 4);
  if (!context.ok()) return context.status();
  EDGEWISE_RETURN_IF_ERROR(check_floating(context, self));
  EDGEWISE_RETURN_IF_ERROR(check_floating(context, out));
  if (!(p >= 0 && p <= 1) || mask->type() != ScalarType::kBool) {
    return context.fail(Code::kInvalidArgument,
                        "a probability is in [0, 1], and the mask is bool; got %g and %s", p,
                        mask->describe().c_str());
  }
  EDGEWISE_TRY(out->resize(self->sizes()));
  EDGEWISE_TRY(mask->resize(self->sizes()));
  Random random;
  ComputeInput<double> x;
  ComputeOutput<double> y;
  ComputeOutput<int64_t> kept;
  EDGEWISE_TRY(x.read(view_of(*self), true));
  EDGEWISE_TRY(y.prepare(view_of(*out), true));
  EDGEWISE_TRY(kept.prepare(view_of(*mask), true));
  const double scale = train && p < 1 ? 1 / (1 - p) : 1;
  for (int64_t i = 0; i < self->numel(); ++i) {
    kept.data[i] = !train || random.uniform() >= p;
    y.data[i] = kept.data[i] ? x.data[i] * scale : 0;
  }
  EDGEWISE_TRY(kept.finish());
  return finish(context, y.finish());
}

// 1 with the probability that p gives, which broadcasts to self; or one number.
Status draw(KernelContext& context, const Tensor* self, View p, Tensor* out) {
  if (!is_floating(p.type) || !is_computable(out->type())) {
    return context.fail(Code::kInvalidArgument, "probabilities are floating; got %s",
                        describe(p.sizes).c_str());
  }
  Dims sizes(self->sizes());
  EDGEWISE_TRY(broadcast(p.sizes, sizes));
  EDGEWISE_TRY(out->resize(sizes));
  ComputeInput<double> x;
  EDGEWISE_TRY(x.read(p.expand(sizes), true));
  Random random;
  int64_t i = 0;
  return generate<int64_t>(context, out, [&] { return random.uniform() < x.data[i++]; });
}

Status bernoulli(KernelContext& context) {
  const Tensor* self = context.tensor(0);
  Tensor* out = output(context, 2);
  if (!context.ok()) return context.status();
  return draw(context, self, view_of(*self), out);
}

Status bernoulli_float(KernelContext& context) {
  const Tensor* self = context.tensor(0);
  ScalarView p({Scalar::Kind::kDouble, 0, context.number(1)});
  Tensor* out = output(context, 3);
  if (!context.ok()) return context.status();
  return draw(context, self, p.view(), out);
}

constexpr KernelEntry kKernels[] = {
    {"aten::rand.out", 2, of_size<false>},   {"aten::randn.out", 2, of_size<true>},
    {"aten::rand_like.out", 3, like<false>}, {"aten::randn_like.out", 3, like<true>},
    {"aten::randint.out", 3, randint},       {"aten::randint.low_out", 4, randint_low},
    {"aten::randperm.out", 2, randperm},     {"aten::native_dropout.out", 5, native_dropout},
    {"aten::bernoulli.out", 3, bernoulli},   {"aten::bernoulli.float_out", 4, bernoulli_float},
};
const KernelTable table(kEveryLevel, kSelected<kKernels>);

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace edgewise
