#include "kernels/compare.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/view.h"

namespace edgewise::testing {
namespace {

// Elements of a tensor in row-major order.
template <typename C>
std::vector<C> elements(const Tensor& tensor) {
  std::vector<C> result(static_cast<size_t>(tensor.numel()));
  const View source = view_of(tensor);
  const View target{reinterpret_cast<std::byte*>(result.data()), kTypeOf<C>, source.sizes,
                    contiguous_strides(source.sizes)};
  (void)assign(target, source);
  return result;
}

// The bits behind the leading one, the smallest normal exponent.
struct Format {
  int bits, lowest;
};
Format format_of(ScalarType type) {
  switch (type) {
    case ScalarType::kFloat:
      return {23, -126};
    case ScalarType::kHalf:
      return {10, -14};
    case ScalarType::kBFloat16:
      return {7, -126};
    default:
      return {52, -1022};
  }
}

// The unit in the last place of a type at a finite number.
double unit_at(double x, ScalarType type) {
  const Format format = format_of(type);
  const int exponent = x == 0 ? format.lowest : std::max(std::ilogb(x), format.lowest);
  return std::ldexp(1.0, exponent - format.bits);
}

// Of the type in which elements are computed.
double epsilon_of(ScalarType type) {
  return type == ScalarType::kDouble ? std::numeric_limits<double>::epsilon()
                                     : std::numeric_limits<float>::epsilon();
}

// One beyond the largest finite number, so that infinity is a neighbour of it.
double bounded(double x, ScalarType type) {
  if (!std::isinf(x)) return x;
  const double most = type == ScalarType::kHalf     ? 65536.0
                      : type == ScalarType::kDouble ? std::numeric_limits<double>::max()
                                                    : 0x1p128;
  return std::copysign(most, x);
}

// How many units they are apart; negative: they are of different kinds.
double distance(double got, double expected, ScalarType type) {
  if (std::isnan(got) || std::isnan(expected)) {
    return std::isnan(got) && std::isnan(expected) ? 0 : -1;
  }
  if (got == expected) return got != 0 || std::signbit(got) == std::signbit(expected) ? 0 : -1;
  const double a = bounded(got, type), b = bounded(expected, type);
  const double unit = unit_at(std::min(std::abs(a), std::abs(b)), type);
  return std::max(std::abs(a / unit - b / unit), 1.0);
}

std::string text_of(double x) {
  char buffer[64];
  const auto end = std::to_chars(buffer, buffer + sizeof(buffer), x).ptr;
  return std::string(buffer, end);
}
std::string text_of(const Tensor& tensor, size_t element) {
  switch (tensor.type()) {
    case ScalarType::kFloat:
    case ScalarType::kDouble:
    case ScalarType::kHalf:
    case ScalarType::kBFloat16:
      return text_of(elements<double>(tensor)[element]);
    default:
      return std::to_string(elements<int64_t>(tensor)[element]);
  }
}

std::string index_text(const std::vector<int64_t>& index) {
  std::string text = "[";
  for (int64_t i : index) text += (text.size() > 1 ? ", " : "") + std::to_string(i);
  return text + "]";
}

// What the arguments have at an index of the result, where they broadcast to it.
std::string arguments_at(const std::vector<Value*>& arguments, const std::vector<int64_t>& index,
                         std::span<const int64_t> sizes) {
  std::string text;
  for (size_t k = 0; k < arguments.size(); ++k) {
    const Tensor* tensor = arguments[k]->get<Tensor>();
    std::string value;
    if (const auto* whole = arguments[k]->get<int64_t>()) {
      value = std::to_string(*whole);
    } else if (const auto* number = arguments[k]->get<double>()) {
      value = text_of(*number);
    } else if (!tensor) {
      continue;
    } else {
      const auto own = tensor->sizes();
      bool fits = own.size() <= sizes.size() && tensor->numel() > 0;
      size_t element = 0;
      for (size_t d = 0; fits && d < own.size(); ++d) {
        const size_t at = sizes.size() - own.size() + d;
        fits = own[d] == 1 || own[d] == sizes[at];
        element = element * static_cast<size_t>(own[d]) +
                  (own[d] == 1 ? 0 : static_cast<size_t>(index[at]));
      }
      value = fits ? text_of(*tensor, element) : tensor->describe();
    }
    text += (text.empty() ? "" : ", ") + value;
  }
  return text;
}

std::string compare(const Tensor& got, const Tensor& expected, const AccuracyRow* accuracy,
                    const Tensor* magnitude, const std::vector<Value*>& arguments) {
  if (got.type() != expected.type() || !std::ranges::equal(got.sizes(), expected.sizes())) {
    return "expected " + expected.describe() + ", got " + got.describe();
  }
  const ScalarType type = got.type();
  const Bound bound = accuracy ? accuracy->of(type) : Bound{};
  const bool floating = type == ScalarType::kFloat || type == ScalarType::kDouble ||
                        type == ScalarType::kHalf || type == ScalarType::kBFloat16;
  const auto a = elements<double>(got), b = elements<double>(expected);
  const auto whole_a = elements<int64_t>(got), whole_b = elements<int64_t>(expected);
  const auto terms = magnitude ? elements<double>(*magnitude) : std::vector<double>();
  for (size_t i = 0; i < a.size(); ++i) {
    const double apart =
        floating ? distance(a[i], b[i], type) : (whole_a[i] == whole_b[i] ? 0 : -1);
    bool within = apart >= 0 && apart <= (bound.terms ? 1 : bound.count);
    double room = 0;
    if (bound.terms && !within && std::isfinite(a[i]) && std::isfinite(b[i])) {
      const double size = terms.empty() ? std::abs(b[i]) : terms[i];
      room = bound.count * epsilon_of(type) * size + unit_at(b[i], type);
      // Of a sum that cancels, a zero may have either sign; one of zeros is a zero.
      within = std::abs(a[i] - b[i]) <= room && (size > 0 || a[i] != b[i]);
    }
    if (within) continue;
    std::vector<int64_t> index(got.sizes().size());
    for (size_t d = index.size(), rest = i; d-- > 0;) {
      index[d] = static_cast<int64_t>(rest % static_cast<size_t>(got.sizes()[d]));
      rest /= static_cast<size_t>(got.sizes()[d]);
    }
    std::string text = "element " + index_text(index) + ": expected " + text_of(expected, i) +
                       ", got " + text_of(got, i);
    if (apart > 0) text += ", " + text_of(apart) + " ulp away";
    if (room > 0)
      text += ", " + text_of(std::abs(a[i] - b[i])) + " off, " + text_of(room) + " allowed";
    return text + "; declared: " + bound.describe() +
           "; arguments there: " + arguments_at(arguments, index, got.sizes());
  }
  return "";
}

}  // namespace

std::string compare(const Value& got, const Value& expected, const AccuracyRow* accuracy,
                    const Value* magnitude, const std::vector<Value*>& arguments) {
  if (got.kind() != expected.kind()) {
    return "expected a " + std::string(expected.kind()) + ", got a " + std::string(got.kind());
  }
  if (const Tensor* tensor = got.get<Tensor>()) {
    return compare(*tensor, *expected.get<Tensor>(), accuracy,
                   magnitude ? magnitude->get<Tensor>() : nullptr, arguments);
  }
  if (const TensorList* list = got.get<TensorList>()) {
    for (size_t i = 0; i < list->items.size(); ++i) {
      const std::string difference =
          compare(*list->items[i], *expected.get<TensorList>()->items[i], accuracy, nullptr, {});
      if (!difference.empty()) return "item " + std::to_string(i) + ": " + difference;
    }
    return "";
  }
  if (const int64_t* number = got.get<int64_t>()) {
    return *number == *expected.get<int64_t>() ? "" : "got " + std::to_string(*number);
  }
  if (const double* number = got.get<double>()) {
    const double wanted = *expected.get<double>();
    return std::bit_cast<uint64_t>(*number) == std::bit_cast<uint64_t>(wanted) ||
                   (std::isnan(*number) && std::isnan(wanted))
               ? ""
               : "expected " + text_of(wanted) + ", got " + text_of(*number);
  }
  if (const bool* truth = got.get<bool>()) {
    return *truth == *expected.get<bool>() ? "" : "got another bool";
  }
  return "a result of an unexpected kind";
}

}  // namespace edgewise::testing
