// Matrix products: mm, bmm, addmm, baddbmm, linear, mv, dot.
#include <atomic>

#include "compute_tensor.h"
#include "gemm.h"

namespace edgewise {
inline namespace HWY_NAMESPACE {
namespace {

struct Product {
  View a;                     // [batch, m, k]
  View b;                     // [batch, k, n]
  std::optional<View> added;  // broadcast to [batch, m, n]
  Scalar alpha{Scalar::Kind::kInt, 1, 0}, beta{Scalar::Kind::kInt, 1, 0};
  View out;  // [batch, m, n]
};

// Swaps the last two of three dimensions.
void transpose(Dims& sizes, Dims& strides) {
  std::swap(sizes[1], sizes[2]);
  std::swap(strides[1], strides[2]);
}

// A row times the matrix B [k, n], whose rows are `stride` apart: it is read where it is.
template <typename C, typename Write>
void multiply_row(const C* a, const C* b, int64_t k, int64_t n, int64_t stride, Write&& write) {
  constexpr int64_t kColumns = 256, kTogether = 4;
  alignas(64) C sums[kColumns];
  for (int64_t first = 0; first < n; first += kColumns) {
    const int64_t count = std::min(kColumns, n - first);
    std::fill_n(sums, count, C(0));
    const C* row = b + first;
    int64_t i = 0;
    for (; i + kTogether <= k; i += kTogether, row += kTogether * stride) {
      const C f0 = a[i], f1 = a[i + 1], f2 = a[i + 2], f3 = a[i + 3];
      const C *r1 = row + stride, *r2 = r1 + stride, *r3 = r2 + stride;
      EDGEWISE_INDEPENDENT
      for (int64_t j = 0; j < count; ++j) {
        const C low = wrap_add(wrap_mul(f0, row[j]), wrap_mul(f1, r1[j]));
        const C high = wrap_add(wrap_mul(f2, r2[j]), wrap_mul(f3, r3[j]));
        sums[j] = wrap_add(sums[j], wrap_add(low, high));
      }
    }
    for (; i < k; ++i, row += stride) {
      for (int64_t j = 0; j < count; ++j) sums[j] = wrap_add(sums[j], wrap_mul(a[i], row[j]));
    }
    write(0, first, count, sums);
  }
}

// Sums of float are taken in float over stretches short enough to round little.
template <typename C>
C long_dot(const C* a, const C* b, int64_t k) {
  if constexpr (!std::is_same_v<C, float>) return dot(a, b, k);
  constexpr int64_t kStretch = 4096;
  double total = 0;
  for (int64_t i = 0; i < k; i += kStretch) total += dot(a + i, b + i, std::min(kStretch, k - i));
  return static_cast<C>(total);
}

template <typename C>
Status multiply(const Product& product) {
  const int64_t batches = product.out.sizes[0], m = product.out.sizes[1], n = product.out.sizes[2];
  const int64_t k = product.a.sizes[2];
  const C alpha = scalar_to<C>(product.alpha), beta = scalar_to<C>(product.beta);
  ComputeInput<C> a, b, added;
  ComputeOutput<C> out;
  EDGEWISE_RETURN_IF_ERROR(a.read(product.a, true));
  // A transposed factor stays one if it is converted: its columns are what is read in a row.
  View second = product.b;
  const bool transposed = second.strides[1] == 1;
  if (transposed) transpose(second.sizes, second.strides);
  // What one row is multiplied with is converted as it is read, which is once.
  constexpr int64_t kHeld = 4096;
  const bool as_read = m == 1 && transposed && second.type != kTypeOf<C> && kDots * k <= kHeld;
  if (!as_read) {
    EDGEWISE_RETURN_IF_ERROR(b.read(second));
    if (transposed) transpose(b.sizes, b.strides);
  }
  if (product.added && beta != 0) {
    EDGEWISE_RETURN_IF_ERROR(added.read(*product.added));
    if (added.sizes.size() != 3) return error(Code::kInternal, "an addend has three dimensions");
  }
  EDGEWISE_RETURN_IF_ERROR(out.prepare(product.out));
  for (int64_t batch = 0; batch < batches; ++batch) {
    const C* from = as_read ? nullptr : b.data + batch * b.strides[0];
    const auto pack = [&](int64_t first, int64_t count, C* panel) {
      for (int64_t i = 0; i < k; ++i, panel += kGemmColumns) {
        const C* row = from + i * b.strides[1] + first * b.strides[2];
        if (count == kGemmColumns && b.strides[2] == 1) {
          std::memcpy(panel, row, kGemmColumns * sizeof(C));
        } else {
          for (int64_t j = 0; j < count; ++j) panel[j] = row[j * b.strides[2]];
          for (int64_t j = count; j < kGemmColumns; ++j) panel[j] = 0;
        }
      }
    };
    const auto write = [&](int64_t row, int64_t first, int64_t count, const C* products) {
      C* to = out.data + batch * out.strides[0] + row * out.strides[1] + first * out.strides[2];
      const C* plus = added.data ? added.data + batch * added.strides[0] + row * added.strides[1] +
                                       first * added.strides[2]
                                 : nullptr;
      if (!plus && alpha == 1 && out.strides[2] == 1) {
        std::copy_n(products, count, to);
        return;
      }
      for (int64_t j = 0; j < count; ++j) {
        C value = wrap_mul(alpha, products[j]);
        if (plus) value = wrap_add(value, wrap_mul(beta, plus[j * added.strides[2]]));
        to[j * out.strides[2]] = value;
      }
    };
    const C* rows = a.data + batch * m * k;
    if (as_read) {
      alignas(64) C held[kHeld];
      const View columns = second.select(0, batch);
      for (int64_t column = 0; column < n; column += kDots) {
        const int64_t count = std::min(kDots, n - column);
        for (int64_t r = 0; r < count; ++r) {
          load<C>(columns.type, columns.at((column + r) * columns.strides[0]), 1, k, held + r * k);
        }
        if (count < kDots) std::fill(held + count * k, held + kDots * k, C(0));
        C sums[kDots];
        dots(rows, held, k, k, sums);
        write(0, column, count, sums);
      }
    } else if (n == 1 && m >= kDots && (b.strides[1] == 1 || k == 1)) {
      // A matrix times a vector: a few of its rows at a time.
      for (int64_t row = 0; row < m; row += kDots) {
        row = std::min(row, m - kDots);
        C sums[kDots];
        dots(from, rows + row * k, k, k, sums);
        for (int64_t r = 0; r < kDots; ++r) write(row + r, 0, 1, sums + r);
      }
    } else if ((m == 1 || n == 1) && (b.strides[1] == 1 || k == 1)) {
      // A vector is read once: no use in packing the other factor.
      for (int64_t row = 0; row < m; ++row) {
        int64_t column = 0;
        C sums[kDots];
        for (; column + kDots <= n; column += kDots) {
          dots(rows + row * k, from + column * b.strides[2], b.strides[2], k, sums);
          write(row, column, kDots, sums);
        }
        for (; column < n; ++column) {
          sums[0] = long_dot(rows + row * k, from + column * b.strides[2], k);
          write(row, column, 1, sums);
        }
      }
    } else if (m == 1 && b.strides[2] == 1) {
      multiply_row(rows, from, k, n, b.strides[1], write);
    } else {
      EDGEWISE_RETURN_IF_ERROR(gemm<C>(m, n, k, rows, pack, write));
    }
  }
  return out.finish();
}

// Threads share the products of a batch, or the columns or rows of one, if there is enough to do
// for it to be worth waking them. The result does not depend on their number.
Status share(const Product& product, Workers* workers, Status (*multiply)(const Product&)) {
  constexpr int64_t kMostTasks = 16;
  constexpr int64_t kLeastWork = 1 << 18;  // multiply-adds of a task
  constexpr int64_t kLeastPart = 128;  // columns or rows: each part packs or converts a factor anew
  const Dims& sizes = product.out.sizes;
  const size_t dim = sizes[0] > 1 ? 0 : sizes[2] >= 2 * kLeastPart ? 2 : 1;
  const int64_t count = sizes[dim], unit = dim == 0 ? 1 : kLeastPart;
  const int64_t work = product.out.numel() * product.a.sizes[2];
  const int64_t tasks = std::min({kMostTasks, count / unit, work / kLeastWork});
  if (workers == nullptr || tasks < 2) return multiply(product);
  // Of whole panels, so that each number is computed in the same way as by one thread.
  const int64_t step = dim == 0 ? 1 : kGemmColumns;
  const int64_t part = ((count + tasks - 1) / tasks + step - 1) / step * step;
  std::atomic<bool> has_failed = false;
  for_each(workers, static_cast<size_t>((count + part - 1) / part), [&](size_t task) {
    const int64_t first = static_cast<int64_t>(task) * part;
    const int64_t size = std::min(part, count - first);
    Product mine = product;
    mine.out = product.out.narrow(dim, first, size);
    if (dim != 2) mine.a = product.a.narrow(dim, first, size);
    if (dim != 1) mine.b = product.b.narrow(dim, first, size);
    if (product.added) mine.added = product.added->narrow(dim, first, size);
    if (!multiply(mine).ok()) has_failed = true;
  });
  if (has_failed) return error(Code::kOutOfMemory, "there is no working memory");
  return {};
}

// `shape` is out's, which `product.out` views with three dimensions.
Status run(KernelContext& context, Product& product, const Tensor* a, const Tensor* b,
           const Tensor* added) {
  if (a->type() != b->type() || (added && added->type() != a->type()) ||
      !is_computable(a->type())) {
    return context.fail(Code::kInvalidArgument, "factors have one type; got %s and %s",
                        a->describe().c_str(), b->describe().c_str());
  }
  if (!can_store(a->type(), product.out.type)) {
    return context.fail(Code::kInvalidArgument,
                        "the product is as its factors, %s; got another output",
                        a->describe().c_str());
  }
  if (product.out.numel() == 0) return context.status();
  const auto run = [&](auto c) {
    return finish(context, share(product, context.workers(), multiply<decltype(c)>));
  };
  // A wider output would show the bits that wrap.
  if (product.out.type == a->type()) return with_short_compute_type(a->type(), run);
  return with_compute_type(a->type(), run);
}

View batched(View matrix) {
  matrix.sizes.insert(0, 1);
  matrix.strides.insert(0, 0);
  return matrix;
}

// Takes matrices (rank 2) or batches of them (rank 3).
Status product_of(KernelContext& context, const Tensor* a, const Tensor* b, const Tensor* added,
                  size_t rank, const Scalar& alpha, const Scalar& beta, Tensor* out) {
  const bool fits = a->rank() == rank && b->rank() == rank &&
                    a->size(rank - 1) == b->size(rank - 2) &&
                    (rank == 2 || a->size(0) == b->size(0));
  if (!fits) {
    return context.fail(Code::kInvalidArgument, "takes %s; got %s and %s",
                        rank == 2 ? "[M, K] and [K, N]" : "[B, M, K] and [B, K, N]",
                        a->describe().c_str(), b->describe().c_str());
  }
  Dims sizes(a->sizes());
  sizes[rank - 1] = b->size(rank - 1);
  Product product;
  product.alpha = alpha;
  product.beta = beta;
  if (added) {
    Dims widest = sizes;
    EDGEWISE_TRY(broadcast(added->sizes(), widest));
    if (!(widest == sizes)) {
      return context.fail(Code::kInvalidArgument, "the addend broadcasts to %s; got %s",
                          describe(sizes).c_str(), added->describe().c_str());
    }
    product.added = view_of(*added).expand(sizes);
    if (rank == 2) product.added = batched(*product.added);
  }
  EDGEWISE_TRY(out->resize(sizes));
  product.a = rank == 2 ? batched(view_of(*a)) : view_of(*a);
  product.b = rank == 2 ? batched(view_of(*b)) : view_of(*b);
  product.out = rank == 2 ? batched(view_of(*out)) : view_of(*out);
  return run(context, product, a, b, added);
}

const Scalar kOne{Scalar::Kind::kInt, 1, 0};

template <size_t kRank>
Status plain(KernelContext& context) {
  const Tensor* a = context.tensor(0);
  const Tensor* b = context.tensor(1);
  Tensor* out = output(context, 2);
  if (!context.ok()) return context.status();
  return product_of(context, a, b, nullptr, kRank, kOne, kOne, out);
}

template <size_t kRank>
Status with_addend(KernelContext& context) {
  const Tensor* added = context.tensor(0);
  const Tensor* a = context.tensor(1);
  const Tensor* b = context.tensor(2);
  const Scalar beta = context.scalar(3), alpha = context.scalar(4);
  Tensor* out = output(context, 5);
  if (!context.ok()) return context.status();
  return product_of(context, a, b, added, kRank, alpha, beta, out);
}

Status linear(KernelContext& context) {
  const Tensor* input = context.tensor(0);
  const Tensor* weight = context.tensor(1);
  const Tensor* bias = context.optional_tensor(2);
  Tensor* out = output(context, 3);
  if (!context.ok()) return context.status();
  const bool fits = input->rank() >= 1 && weight->rank() == 2 &&
                    input->size(input->rank() - 1) == weight->size(1) &&
                    (!bias || (bias->rank() == 1 && bias->size(0) == weight->size(0)));
  if (!fits) {
    return context.fail(Code::kInvalidArgument,
                        "takes [..., K], [N, K] and perhaps [N]; got %s and %s",
                        input->describe().c_str(), weight->describe().c_str());
  }
  Dims sizes(input->sizes());
  const int64_t k = weight->size(1), n = weight->size(0);
  sizes[sizes.size() - 1] = n;
  EDGEWISE_TRY(out->resize(sizes));
  if (out->numel() == 0) return context.status();
  const int64_t m = out->numel() / n;
  // Leading dimensions become one, on row-major copies if need be.
  const auto flat = [m](const View& view, int64_t columns) {
    View result = view;
    result.sizes = Dims(std::array{int64_t{1}, m, columns});
    result.strides = contiguous_strides(result.sizes);
    return result;
  };
  View source = view_of(*input), target = view_of(*out);
  Scratch<std::byte> in_copy, out_copy;
  if (!source.is_row_major()) {
    EDGEWISE_TRY(in_copy.reserve(static_cast<int64_t>(input->nbytes())));
    View copy = source;
    copy.data = in_copy.data();
    copy.strides = contiguous_strides(copy.sizes);
    EDGEWISE_TRY(assign(copy, source));
    source = copy;
  }
  View result = target;
  if (!target.is_row_major()) {
    EDGEWISE_TRY(out_copy.reserve(static_cast<int64_t>(out->nbytes())));
    result.data = out_copy.data();
    result.strides = contiguous_strides(result.sizes);
  }
  Product product;
  product.a = flat(source, k);
  product.b = batched(view_of(*weight));
  std::swap(product.b.sizes[1], product.b.sizes[2]);
  std::swap(product.b.strides[1], product.b.strides[2]);
  product.out = flat(result, n);
  if (bias) product.added = view_of(*bias).expand(product.out.sizes);
  EDGEWISE_RETURN_IF_ERROR(run(context, product, input, weight, bias));
  if (result.data == target.data) return context.status();
  return finish(context, assign(target, result));
}

// Vectors are matrices with one column or row.
template <size_t kRank>
Status with_vector(KernelContext& context) {
  const Tensor* a = context.tensor(0);
  const Tensor* b = context.tensor(1);
  Tensor* out = output(context, 2);
  if (!context.ok()) return context.status();
  if (a->rank() != kRank || b->rank() != 1 || a->size(kRank - 1) != b->size(0)) {
    return context.fail(Code::kInvalidArgument, "takes %s[K] and [K]; got %s and %s",
                        kRank == 2 ? "[M, K] or " : "", a->describe().c_str(),
                        b->describe().c_str());
  }
  Dims sizes(a->sizes());
  sizes.erase(kRank - 1);
  EDGEWISE_TRY(out->resize(sizes));
  Product product;
  product.a = view_of(*a);
  product.b = view_of(*b);
  product.out = view_of(*out);
  for (View* view : {&product.a, &product.out}) {
    while (view->sizes.size() < (view == &product.out ? 2u : 3u)) {
      view->sizes.insert(0, 1);
      view->strides.insert(0, 0);
    }
  }
  product.b = batched(product.b);
  product.b.sizes.push(1);
  product.b.strides.push(0);
  product.out.sizes.push(1);
  product.out.strides.push(0);
  return run(context, product, a, b, nullptr);
}

constexpr KernelEntry kKernels[] = {
    {"aten::mm.out", 3, plain<2>},          {"aten::bmm.out", 3, plain<3>},
    {"aten::addmm.out", 6, with_addend<2>}, {"aten::baddbmm.out", 6, with_addend<3>},
    {"aten::linear.out", 4, linear},        {"aten::mv.out", 3, with_vector<2>},
    {"aten::dot.out", 3, with_vector<1>},
};
const KernelTable table(HWY_TARGET, kSelected<kKernels>);

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace edgewise
