// Positions in sorted sequences: searchsorted, bucketize.
#include <string_view>

#include "compute_tensor.h"
#include "cpu_dispatch.h"
#include "indices.h"

namespace edgewise {
inline namespace HWY_NAMESPACE {
namespace {

struct Search {
  View boundaries;  // [..., n], sorted
  View values;      // leading sizes as the boundaries', or boundaries of one dimension
  const Tensor* sorter = nullptr;
  bool right = false;
};

// The first index whose boundary is not less than `value` (right: is more). NaN is the most.
template <typename C, typename At>
int64_t find(C value, int64_t n, bool right, At&& at) {
  int64_t low = 0;
  while (n > 0) {
    const int64_t half = n / 2;
    const C boundary = at(low + half);
    // No branch depends on it: none would be foreseen.
    const bool after = right ? boundary > value : boundary >= value;
    const int64_t go_on = static_cast<int64_t>(after) - 1;
    low += (half + 1) & go_on;
    n = half - ((1 - (n & 1)) & go_on);
  }
  return low;
}

Status run(KernelContext& context, const Search& search, Tensor* out) {
  const View& b = search.boundaries;
  const View& v = search.values;
  const size_t rank = b.sizes.size();
  bool fits = rank >= 1 && is_computable(b.type) && is_computable(v.type) &&
              (out->type() == ScalarType::kLong || out->type() == ScalarType::kInt) &&
              (rank == 1 || v.sizes.size() == rank);
  for (size_t dim = 0; fits && rank > 1 && dim + 1 < rank; ++dim) {
    fits = b.sizes[dim] == v.sizes[dim];
  }
  if (fits && search.sorter) fits = Dims(search.sorter->sizes()) == b.sizes;
  if (!fits) {
    return context.fail(Code::kInvalidArgument,
                        "takes sorted sequences [..., n], values with the same leading sizes, and "
                        "an output of int64 or int32; got %s, %s and %s",
                        describe(b.sizes).c_str(), describe(v.sizes).c_str(),
                        out->describe().c_str());
  }
  EDGEWISE_TRY(out->resize(v.sizes));
  if (v.numel() == 0) return context.status();
  const int64_t n = b.sizes[rank - 1];
  Indices order;
  if (search.sorter) EDGEWISE_TRY(order.read(*search.sorter, n, Indices::Negative::kRefused));
  return with_compute_type(promote(b.type, v.type), [&](auto c) -> Status {
    using C = decltype(c);
    ComputeInput<C> boundaries, values;
    ComputeOutput<int64_t> indices;
    EDGEWISE_TRY(values.read(v, true));
    EDGEWISE_TRY(indices.prepare(view_of(*out), true));
    const int64_t row = rank == 1 ? v.numel() : v.sizes[rank - 1];
    const auto find_all = [&](auto&& boundary) {
      for (int64_t i = 0; i < v.numel(); ++i) {
        const int64_t begin = rank == 1 ? 0 : i / row * n;
        indices.data[i] = find<C>(values.data[i], n, search.right, [&](int64_t k) {
          return boundary(begin + (search.sorter ? order[begin + k] : k));
        });
      }
    };
    if (b.is_row_major() && v.numel() < n / 64) {  // most boundaries are not looked at
      find_all([&](int64_t k) { return load_one<C>(b.type, b.at(k)); });
    } else {
      EDGEWISE_TRY(boundaries.read(b, true));
      find_all([&](int64_t k) { return boundaries.data[k]; });
    }
    return finish(context, indices.finish());
  });
}

template <bool kScalar>
Status searchsorted(KernelContext& context) {
  const Tensor* sequence = context.tensor(0);
  const Tensor* values = kScalar ? nullptr : context.tensor(1);
  ScalarView number(kScalar ? context.scalar(1) : Scalar{});
  Search search;
  search.right = context.boolean(3);
  const Value* side = context.value(4);
  search.sorter = context.optional_tensor(5);
  Tensor* out = output(context, 6);
  if (!context.ok()) return context.status();
  if (!side->is_none()) search.right = context.string(4) == "right";
  if (!context.ok()) return context.status();
  search.boundaries = view_of(*sequence);
  search.values = kScalar ? number.view() : view_of(*values);
  return run(context, search, out);
}

template <bool kScalar>
Status bucketize(KernelContext& context) {
  const Tensor* values = kScalar ? nullptr : context.tensor(0);
  ScalarView number(kScalar ? context.scalar(0) : Scalar{});
  const Tensor* boundaries = context.tensor(1);
  Search search;
  search.right = context.boolean(3);
  Tensor* out = output(context, 4);
  if (!context.ok()) return context.status();
  if (boundaries->rank() != 1) {
    return context.fail(Code::kInvalidArgument, "boundaries have one dimension; got %s",
                        boundaries->describe().c_str());
  }
  search.boundaries = view_of(*boundaries);
  search.values = kScalar ? number.view() : view_of(*values);
  return run(context, search, out);
}

constexpr KernelEntry kKernels[] = {
    {"aten::searchsorted.Tensor_out", 7, searchsorted<false>},
    {"aten::searchsorted.Scalar_out", 7, searchsorted<true>},
    {"aten::bucketize.Tensor_out", 5, bucketize<false>},
    {"aten::bucketize.Scalar_out", 5, bucketize<true>},
};
const KernelTable table(kEveryLevel, kSelected<kKernels>);

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace edgewise
