#include "kernels/case_text.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <optional>

#include "kernels/element.h"
#include "kernels/view.h"

namespace edgewise::testing {
namespace {

struct TypeName {
  std::string_view name;
  ScalarType type;
  double tolerance;  // relative, and absolute below 1
};
constexpr TypeName kTypes[] = {
    {"f32", ScalarType::kFloat, 2e-6}, {"f64", ScalarType::kDouble, 1e-12},
    {"f16", ScalarType::kHalf, 1e-3},  {"bf16", ScalarType::kBFloat16, 8e-3},
    {"i8", ScalarType::kChar, 0},      {"i16", ScalarType::kShort, 0},
    {"i32", ScalarType::kInt, 0},      {"i64", ScalarType::kLong, 0},
    {"u8", ScalarType::kByte, 0},      {"bool", ScalarType::kBool, 0},
};

void skip_spaces(std::string_view& text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
}

bool take(std::string_view& text, std::string_view token) {
  skip_spaces(text);
  if (!text.starts_with(token)) return false;
  text.remove_prefix(token.size());
  return true;
}

template <typename T>
bool take_number(std::string_view& text, T& number) {
  skip_spaces(text);
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (failure != std::errc()) return false;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return true;
}

// Comma-separated numbers up to `close`.
template <typename T>
bool take_numbers(std::string_view& text, std::string_view close, std::vector<T>& numbers) {
  while (!take(text, close)) {
    T number{};
    if (!take_number(text, number)) return false;
    numbers.push_back(number);
    take(text, ",");
  }
  return true;
}

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

std::string compare(const Tensor& got, const Tensor& expected) {
  if (got.type() != expected.type() || !std::ranges::equal(got.sizes(), expected.sizes())) {
    return "expected " + expected.describe() + ", got " + got.describe();
  }
  const double tolerance = std::ranges::find(kTypes, got.type(), &TypeName::type)->tolerance;
  const auto a = elements<double>(got), b = elements<double>(expected);
  const auto whole_a = elements<int64_t>(got), whole_b = elements<int64_t>(expected);
  for (size_t i = 0; i < a.size(); ++i) {
    const bool both_nan = std::isnan(a[i]) && std::isnan(b[i]);
    const bool near = std::abs(a[i] - b[i]) <= tolerance * std::max(1.0, std::abs(b[i]));
    const bool same = tolerance > 0 ? both_nan || a[i] == b[i] || near : whole_a[i] == whole_b[i];
    if (!same) {
      return "element " + std::to_string(i) + ": expected " + std::to_string(b[i]) + ", got " +
             std::to_string(a[i]);
    }
  }
  return "";
}

std::string compare(const Value& got, const Value& expected) {
  if (got.kind() != expected.kind()) {
    return "expected a " + std::string(expected.kind()) + ", got a " + std::string(got.kind());
  }
  if (const Tensor* tensor = got.get<Tensor>()) return compare(*tensor, *expected.get<Tensor>());
  if (const TensorList* list = got.get<TensorList>()) {
    for (size_t i = 0; i < list->items.size(); ++i) {
      const std::string difference =
          compare(*list->items[i], *expected.get<TensorList>()->items[i]);
      if (!difference.empty()) return "item " + std::to_string(i) + ": " + difference;
    }
    return "";
  }
  if (const int64_t* number = got.get<int64_t>()) {
    return *number == *expected.get<int64_t>() ? "" : "got " + std::to_string(*number);
  }
  if (const double* number = got.get<double>()) {
    return *number == *expected.get<double>() ? "" : "got " + std::to_string(*number);
  }
  if (const bool* truth = got.get<bool>()) {
    return *truth == *expected.get<bool>() ? "" : "got another bool";
  }
  return "a result of an unexpected kind";
}

}  // namespace

Value* CaseValues::keep(Value value) {
  values_.push_back(std::make_unique<Value>(std::move(value)));
  return values_.back().get();
}

Value* CaseValues::add_tensor(std::string_view& text, bool output) {
  const size_t bracket = text.find('[');
  const auto type = std::ranges::find(kTypes, text.substr(0, bracket), &TypeName::name);
  if (type == std::end(kTypes)) return nullptr;
  text.remove_prefix(bracket + 1);
  std::vector<int64_t> sizes;
  if (!take_numbers(text, "]", sizes)) return nullptr;
  std::vector<uint8_t> order;
  if (take(text, ":")) {
    for (size_t i = 0; i < sizes.size(); ++i, text.remove_prefix(1)) {
      order.push_back(static_cast<uint8_t>(text.front() - '0'));
    }
  }
  if (!take(text, "{")) return nullptr;
  std::vector<double> numbers;
  std::vector<int64_t> integers;
  const bool whole = type->type == ScalarType::kLong;
  if (!(whole ? take_numbers(text, "}", integers) : take_numbers(text, "}", numbers))) {
    return nullptr;
  }
  if (output) {
    // Results need not be given room or a shape in advance.
    const std::vector<int64_t> zeros(sizes.size(), 0);
    auto tensor = Tensor::make(type->type, zeros, order, nullptr, 0, Dynamism::kDynamicUnbound);
    if (!tensor) return nullptr;
    tensor->set_buffer(std::make_shared<DynamicBuffer>());
    return keep(Value(Value::Variant(std::move(*tensor))));
  }
  const size_t count = whole ? integers.size() : numbers.size();
  memory_.push_back(std::make_unique<std::vector<std::byte>>(count * element_size(type->type) + 1));
  auto tensor = Tensor::make(type->type, sizes, order, memory_.back()->data(),
                             memory_.back()->size(), Dynamism::kStatic);
  if (!tensor || tensor->numel() != static_cast<int64_t>(count)) return nullptr;
  const Dims shape(tensor->sizes());
  View source{whole ? reinterpret_cast<std::byte*>(integers.data())
                    : reinterpret_cast<std::byte*>(numbers.data()),
              whole ? ScalarType::kLong : ScalarType::kDouble, shape, contiguous_strides(shape)};
  if (!assign(view_of(*tensor), source).ok()) return nullptr;
  return keep(Value(Value::Variant(std::move(*tensor))));
}

Value* CaseValues::add_list(std::string_view& text, bool output) {
  TensorList list;
  while (!take(text, ">")) {
    Value* item = add(text, output);
    if (!item) return nullptr;
    list.optional = list.optional || item->is_none();
    list.items.push_back(item);
  }
  return keep(Value(Value::Variant(std::move(list))));
}

Value* CaseValues::add(std::string_view& text, bool output) {
  skip_spaces(text);
  if (take(text, "none")) return keep(Value());
  if (take(text, "true")) return keep(Value(Value::Variant(true)));
  if (take(text, "false")) return keep(Value(Value::Variant(false)));
  if (take(text, "<")) return add_list(text, output);
  if (take(text, "\"")) {
    const size_t end = text.find('"');
    std::string string(text.substr(0, end));
    text.remove_prefix(end + 1);
    return keep(Value(Value::Variant(std::move(string))));
  }
  if (take(text, "d(")) {
    DoubleList list;
    if (!take_numbers(text, ")", list.items)) return nullptr;
    return keep(Value(Value::Variant(std::move(list))));
  }
  if (take(text, "(")) {
    std::vector<int64_t> numbers;
    if (!take_numbers(text, ")", numbers)) return nullptr;
    IntList list;
    for (int64_t number : numbers) list.items.push_back(keep(Value(Value::Variant(number))));
    return keep(Value(Value::Variant(std::move(list))));
  }
  if (take(text, "f:")) {
    double number = 0;
    if (!take_number(text, number)) return nullptr;
    return keep(Value(Value::Variant(number)));
  }
  int64_t number = 0;
  if (take_number(text, number)) return keep(Value(Value::Variant(number)));
  return add_tensor(text, output);
}

std::string check_case(std::string_view line) {
  const size_t space = line.find(' '), arrow = line.find(" -> ");
  if (space == std::string_view::npos || arrow == std::string_view::npos) return "no case";
  const std::string_view name = line.substr(0, space);
  std::string_view input = line.substr(space, arrow - space);
  std::string_view output = line.substr(arrow + 4);
  const Kernel* kernel = find_kernel(name);
  if (!kernel) return "no such kernel";

  CaseValues values;
  std::vector<Value*> arguments;
  for (skip_spaces(input); !input.empty(); skip_spaces(input)) {
    arguments.push_back(values.add(input, false));
    if (!arguments.back()) return "malformed argument before: " + std::string(input);
  }
  std::optional<std::string_view> error;
  if (const size_t at = output.find("error "); at != std::string_view::npos) {
    error = output.substr(at + 6);
    output = output.substr(0, at);
  }
  std::vector<const Value*> expected;
  const size_t first_result = arguments.size();
  bool in_place = false;
  for (skip_spaces(output); !output.empty(); skip_spaces(output)) {
    in_place = in_place || take(output, "self=");
    std::string_view again = output;
    // Of a call that fails, results are only outputs to pass.
    if (!error) expected.push_back(values.add(output, false));
    Value* target = in_place ? arguments[0] : values.add(again, true);
    if (!target || (!error && !expected.back())) return "malformed result";
    if (!in_place) arguments.push_back(target);
    if (error) output = again;
  }
  const Status status = [&] {
    KernelContext context(kernel->name, arguments);
    return kernel->function(context);
  }();
  if (error) {
    if (status.ok()) return "expected an error, got a result";
    const bool says = status.message().find(*error) != std::string::npos;
    return says ? "" : "got: " + status.message();
  }
  if (!status.ok()) return "got: " + status.message();
  for (size_t i = 0; i < expected.size(); ++i) {
    const Value& got = *arguments[in_place ? 0 : first_result + i];
    const std::string difference = compare(got, *expected[i]);
    if (!difference.empty()) return "result " + std::to_string(i) + ": " + difference;
  }
  // Results come after the arguments; the schema counts outputs, but numbers of prim ops not.
  if (kernel->argument_count > arguments.size() ||
      kernel->argument_count + expected.size() < arguments.size()) {
    return "argument_count is " + std::to_string(kernel->argument_count);
  }
  return "";
}

}  // namespace edgewise::testing
