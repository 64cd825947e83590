#include "view.h"

#include "cpu_dispatch.h"
#include "transpose_tiles.h"

#include <cstring>
#include <string>

namespace edgewise {
inline namespace HWY_NAMESPACE {
namespace {

constexpr int64_t kBlock = 512;

// The dimension in which neighbours are neighbours in memory.
std::optional<size_t> unit_dim(const View& view) {
  for (size_t dim = 0; dim < view.sizes.size(); ++dim) {
    if (view.strides[dim] == 1 && view.sizes[dim] >= 8) return dim;
  }
  return std::nullopt;
}

// Copies between views of which one is the other's transpose, in tiles that are read and
// written along their rows. False if they are not.
template <typename Unit>
bool copy_transposed(const View& target, const View& source) {
  constexpr int64_t kTile = kTransposedTile;
  const auto to_dim = unit_dim(target), from_dim = unit_dim(source);
  if (!to_dim || !from_dim || *to_dim == *from_dim || source.strides[*to_dim] == 0) return false;
  const int64_t rows = target.sizes[*from_dim], columns = target.sizes[*to_dim];
  const int64_t whole_rows = rows / kTile * kTile, whole_columns = columns / kTile * kTile;
  const int64_t to_step = target.strides[*from_dim], from_step = source.strides[*to_dim];
  Dims sizes = target.sizes, to_strides = target.strides, from_strides = source.strides;
  for (const size_t dim : {std::max(*to_dim, *from_dim), std::min(*to_dim, *from_dim)}) {
    sizes.erase(dim), to_strides.erase(dim), from_strides.erase(dim);
  }
  const auto tile = [&](Unit* to, const Unit* from, int64_t height, int64_t width) {
    Unit held[kTile][kTile];
    for (int64_t c = 0; c < width; ++c) {
      for (int64_t r = 0; r < height; ++r) held[r][c] = from[c * from_step + r];
    }
    for (int64_t r = 0; r < height; ++r) {
      for (int64_t c = 0; c < width; ++c) to[r * to_step + c] = held[r][c];
    }
  };
  const Loop<2> loop(sizes, {&to_strides, &from_strides});
  loop.run([&](const auto& offsets, int64_t count, const auto& steps) {
    for (int64_t i = 0; i < count; ++i) {
      Unit* to = reinterpret_cast<Unit*>(target.data) + offsets[0] + i * steps[0];
      const Unit* from = reinterpret_cast<const Unit*>(source.data) + offsets[1] + i * steps[1];
      transpose_tiles(from, from_step, to, to_step, whole_rows, whole_columns);
      for (int64_t r = 0; r < rows; r += kTile) {
        for (int64_t c = r < whole_rows ? whole_columns : 0; c < columns; c += kTile) {
          tile(to + r * to_step + c, from + c * from_step + r, std::min(kTile, rows - r),
               std::min(kTile, columns - c));
        }
      }
    }
  });
  return true;
}

template <typename Unit>
void copy_units(const View& target, const View& source) {
  if (copy_transposed<Unit>(target, source)) return;
  const Loop<2> loop(target.sizes, {&target.strides, &source.strides});
  auto* to = reinterpret_cast<Unit*>(target.data);
  const auto* from = reinterpret_cast<const Unit*>(source.data);
  loop.run([&](const auto& offsets, int64_t count, const auto& steps) {
    Unit* t = to + offsets[0];
    const Unit* s = from + offsets[1];
    if (steps[0] == 1 && steps[1] == 1) {
      std::memmove(t, s, static_cast<size_t>(count) * sizeof(Unit));
    } else if (steps[0] == 1 && steps[1] == 0) {
      std::fill_n(t, count, *s);
    } else if (steps[0] == 1 && steps[1] == -1) {
      EDGEWISE_INDEPENDENT
      for (int64_t i = 0; i < count; ++i) t[i] = s[-i];
    } else {
      for (int64_t i = 0; i < count; ++i) t[i * steps[0]] = s[i * steps[1]];
    }
  });
}

template <typename C>
void convert_views(const View& target, const View& source) {
  const Loop<2> loop(target.sizes, {&target.strides, &source.strides});
  loop.run([&](const auto& offsets, int64_t count, const auto& steps) {
    // What is of this type on one side is where it is used.
    if (target.type == kTypeOf<C> && steps[0] == 1) {
      return load<C>(source.type, source.at(offsets[1]), steps[1], count,
                     reinterpret_cast<C*>(target.at(offsets[0])));
    }
    if (source.type == kTypeOf<C> && steps[1] == 1) {
      return store<C>(target.type, reinterpret_cast<const C*>(source.at(offsets[1])), count,
                      target.at(offsets[0]), steps[0]);
    }
    C block[kBlock];
    for (int64_t start = 0; start < count; start += kBlock) {
      const int64_t n = std::min(kBlock, count - start);
      load<C>(source.type, source.at(offsets[1] + start * steps[1]), steps[1], n, block);
      store<C>(target.type, block, n, target.at(offsets[0] + start * steps[0]), steps[0]);
    }
  });
}

Status check_computable(ScalarType type) {
  if (is_computable(type)) return {};
  return error(Code::kUnsupported,
               "elements are converted between floating and integer types; got %s",
               std::string(to_string(type)).c_str());
}

}  // namespace

void Dims::insert(size_t index, int64_t value) {
  for (size_t i = count_++; i > index; --i) values_[i] = values_[i - 1];
  values_[index] = value;
}

void Dims::erase(size_t index) {
  --count_;
  for (size_t i = index; i < count_; ++i) values_[i] = values_[i + 1];
}

int64_t Dims::product() const {
  int64_t result = 1;
  // An empty tensor's other sizes may be anything.
  for (int64_t value : span()) {
    if (value == 0) return 0;
  }
  for (int64_t value : span()) result *= value;
  return result;
}

Dims contiguous_strides(const Dims& sizes) {
  Dims strides(sizes);
  int64_t stride = 1;
  for (size_t dim = sizes.size(); dim-- > 0;) {
    strides[dim] = stride;
    stride = wrap_mul(stride, std::max<int64_t>(sizes[dim], 1));
  }
  return strides;
}

bool View::is_row_major() const {
  int64_t expected = 1;
  for (size_t dim = sizes.size(); dim-- > 0;) {
    if (sizes[dim] != 1 && strides[dim] != expected) return false;
    expected = wrap_mul(expected, std::max<int64_t>(sizes[dim], 1));
  }
  return true;
}

View View::select(size_t dim, int64_t index) const {
  View result = *this;
  result.move(index * strides[dim]);
  result.sizes.erase(dim);
  result.strides.erase(dim);
  return result;
}

View View::narrow(size_t dim, int64_t start, int64_t count, int64_t step) const {
  View result = *this;
  // An empty view may start past the end: its pointer stays inside.
  if (count > 0) result.move(start * strides[dim]);
  result.sizes[dim] = count;
  // One element or none makes no use of a step, which may be huge.
  result.strides[dim] = count > 1 ? strides[dim] * step : strides[dim];
  return result;
}

View View::expand(const Dims& wanted) const {
  View result = *this;
  result.sizes = wanted;
  result.strides = wanted;
  const size_t added = wanted.size() - sizes.size();
  for (size_t dim = 0; dim < wanted.size(); ++dim) {
    const bool repeats = dim < added || (sizes[dim - added] == 1 && wanted[dim] != 1);
    result.strides[dim] = repeats ? 0 : strides[dim - added];
  }
  return result;
}

View view_of(const Tensor& tensor) {
  return {tensor.data<std::byte>(), tensor.type(), tensor.sizes(), tensor.strides()};
}

ScalarView::ScalarView(const Scalar& scalar) : bytes_{} {
  if (scalar.kind == Scalar::Kind::kDouble) {
    type_ = ScalarType::kDouble;
    std::memcpy(bytes_, &scalar.d, sizeof(double));
  } else {
    type_ = ScalarType::kLong;
    const int64_t value = scalar.kind == Scalar::Kind::kBool ? scalar.i != 0 : scalar.i;
    std::memcpy(bytes_, &value, sizeof(int64_t));
  }
}

View ScalarView::view() { return {bytes_, type_, Dims(), Dims()}; }

View ScalarView::narrow(const View& other, ScalarType type) {
  type_ = type;
  if (is_floating(type)) {
    const double value = load_one<double>(other.type, other.data);
    store<double>(type, &value, 1, bytes_, 1);
  } else {
    const int64_t value = load_one<int64_t>(other.type, other.data);
    store<int64_t>(type, &value, 1, bytes_, 1);
  }
  return view();
}

Status broadcast(std::span<const int64_t> other, Dims& sizes) {
  while (sizes.size() < other.size()) sizes.insert(0, 1);
  const size_t added = sizes.size() - other.size();
  for (size_t dim = added; dim < sizes.size(); ++dim) {
    const int64_t size = other[dim - added];
    if (sizes[dim] == size || size == 1) continue;
    if (sizes[dim] != 1) {
      return error(
          Code::kInvalidArgument,
          "shapes must broadcast (sizes be equal or 1, from the last dimension on); got %s "
          "and %s",
          describe(sizes).c_str(), describe(other).c_str());
    }
    sizes[dim] = size;
  }
  return {};
}

Status to_sizes(std::span<const int64_t> values, Dims& sizes) {
  bool fits = values.size() <= kMaxDims;
  int64_t product = 1;
  for (int64_t value : values) {
    fits = fits && value >= 0 &&
           !__builtin_mul_overflow(product, std::max<int64_t>(value, 1), &product);
  }
  if (!fits || product > (int64_t{1} << 58)) {
    return error(
        Code::kInvalidArgument,
        "a shape has at most %zu sizes, none negative, for less than 2^58 elements; got %s",
        kMaxDims, describe(values).c_str());
  }
  sizes = Dims(values);
  return {};
}

Status normalize_dim(int64_t& dim, size_t rank) {
  const int64_t limit = std::max<int64_t>(static_cast<int64_t>(rank), 1);
  if (dim < -limit || dim >= limit) {
    return error(Code::kInvalidArgument, "a dimension must be in [%lld, %lld]; got %lld",
                 static_cast<long long>(-limit), static_cast<long long>(limit - 1),
                 static_cast<long long>(dim));
  }
  if (dim < 0) dim += limit;
  return {};
}

Status check_has_dims(const View& view) {
  if (view.sizes.size() > 0) return {};
  return error(Code::kInvalidArgument, "takes a tensor with dimensions; got none");
}

Status slice(View& view, int64_t dim, std::optional<int64_t> start, std::optional<int64_t> end,
             int64_t step) {
  EDGEWISE_RETURN_IF_ERROR(check_has_dims(view));
  EDGEWISE_RETURN_IF_ERROR(normalize_dim(dim, view.sizes.size()));
  if (step <= 0) {
    return error(Code::kInvalidArgument, "a slice's step is positive; got %lld",
                 static_cast<long long>(step));
  }
  const int64_t size = view.sizes[static_cast<size_t>(dim)];
  const auto clip = [size](int64_t value) {
    return std::clamp<int64_t>(value < 0 ? value + size : value, 0, size);
  };
  const int64_t first = clip(start.value_or(0));
  const int64_t last = clip(end.value_or(size));
  const int64_t count = last > first ? (last - first - 1) / step + 1 : 0;
  view = view.narrow(static_cast<size_t>(dim), first, count, step);
  return {};
}

Status select(View& view, int64_t dim, int64_t index) {
  EDGEWISE_RETURN_IF_ERROR(check_has_dims(view));
  EDGEWISE_RETURN_IF_ERROR(normalize_dim(dim, view.sizes.size()));
  const int64_t size = view.sizes[static_cast<size_t>(dim)];
  if (index < -size || index >= size) {
    return error(Code::kInvalidArgument, "an index must be in [%lld, %lld]; got %lld",
                 static_cast<long long>(-size), static_cast<long long>(size - 1),
                 static_cast<long long>(index));
  }
  view = view.select(static_cast<size_t>(dim), index < 0 ? index + size : index);
  return {};
}

std::string describe(std::span<const int64_t> sizes) {
  std::string text = "[";
  for (size_t i = 0; i < sizes.size(); ++i) {
    text += (i ? ", " : "") + std::to_string(sizes[i]);
  }
  return text + "]";
}

#if HWY_TARGET != HWY_STATIC_TARGET
namespace {

Status assign_parts(const ViewParts& target, const ViewParts& source) {
  return assign({target.data, target.type, Dims(target.sizes), Dims(target.strides)},
                {source.data, source.type, Dims(source.sizes), Dims(source.strides)});
}
const AssignOfTarget assign_of_target(HWY_TARGET, assign_parts);

}  // namespace
#endif

Status assign(const View& target, const View& source) {
  if (!(target.sizes == source.sizes)) {
    return error(Code::kInvalidArgument, "a copy takes equal shapes; got %s to %s",
                 describe(source.sizes).c_str(), describe(target.sizes).c_str());
  }
  if (target.numel() == 0) return {};
  if (target.type == source.type && target.strides == source.strides && target.is_row_major()) {
    const auto count = static_cast<size_t>(target.numel());
    std::memmove(target.data, source.data, count * element_size(target.type));
    return {};
  }
#if HWY_TARGET == HWY_STATIC_TARGET
  if (const AssignParts best = best_assign()) {
    const auto parts = [](const View& view) -> ViewParts {
      return {view.data, view.type, view.sizes.span(), view.strides.span()};
    };
    return best(parts(target), parts(source));
  }
#endif
  if (target.type == source.type) {
    switch (element_size(target.type)) {
      case 1:
        copy_units<uint8_t>(target, source);
        return {};
      case 2:
        copy_units<uint16_t>(target, source);
        return {};
      case 4:
        copy_units<uint32_t>(target, source);
        return {};
      case 8:
        copy_units<uint64_t>(target, source);
        return {};
      default:
        break;
    }
  }
  EDGEWISE_RETURN_IF_ERROR(check_computable(target.type));
  EDGEWISE_RETURN_IF_ERROR(check_computable(source.type));
  with_type_between(source.type, target.type,
                    [&](auto c) { convert_views<decltype(c)>(target, source); });
  return {};
}

Status assign_linear(const View& target, const View& source) {
  if (target.numel() != source.numel()) {
    return error(Code::kInvalidArgument, "a view keeps the number of elements; got %s for %s",
                 describe(target.sizes).c_str(), describe(source.sizes).c_str());
  }
  if (target.numel() == 0) return {};
  if (target.sizes == source.sizes) return assign(target, source);
  if (target.is_row_major()) {
    View reshaped = target;
    reshaped.sizes = source.sizes;
    reshaped.strides = contiguous_strides(source.sizes);
    return assign(reshaped, source);
  }
  if (source.is_row_major()) {
    View reshaped = source;
    reshaped.sizes = target.sizes;
    reshaped.strides = contiguous_strides(target.sizes);
    return assign(target, reshaped);
  }
  Scratch<std::byte> scratch;
  View between = source;
  EDGEWISE_RETURN_IF_ERROR(
      scratch.reserve(source.numel() * static_cast<int64_t>(element_size(source.type))));
  between.data = scratch.data();
  between.strides = contiguous_strides(source.sizes);
  EDGEWISE_RETURN_IF_ERROR(assign(between, source));
  return assign_linear(target, between);
}

Status copy_to(Tensor* out, const View& source) {
  EDGEWISE_RETURN_IF_ERROR(out->resize(source.sizes));
  return assign(view_of(*out), source);
}

Status fill(const View& target, const Scalar& value) {
  if (target.numel() == 0) return {};
  // Converted once, then repeated.
  ScalarView scalar(value);
  alignas(8) std::byte bytes[8] = {};
  const View one{bytes, target.type, Dims(), Dims()};
  EDGEWISE_RETURN_IF_ERROR(assign(one, scalar.view()));
  return assign(target, one.expand(target.sizes));
}

}  // namespace HWY_NAMESPACE
}  // namespace edgewise
