#include "kernels/case_text.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <optional>

#include "kernels/compare.h"
#include "kernels/cpu_dispatch.h"
#include "kernels/view.h"

namespace edgewise::testing {
namespace {

struct TypeName {
  std::string_view name;
  ScalarType type;
};
constexpr TypeName kTypes[] = {
    {"f32", ScalarType::kFloat},     {"f64", ScalarType::kDouble}, {"f16", ScalarType::kHalf},
    {"bf16", ScalarType::kBFloat16}, {"i8", ScalarType::kChar},    {"i16", ScalarType::kShort},
    {"i32", ScalarType::kInt},       {"i64", ScalarType::kLong},   {"u8", ScalarType::kByte},
    {"u16", ScalarType::kUInt16},    {"u32", ScalarType::kUInt32}, {"u64", ScalarType::kUInt64},
    {"bool", ScalarType::kBool},
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
  // What is only moved may be anything.
  if (is_computable(type->type) && !assign(view_of(*tensor), source).ok()) return nullptr;
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
  if (take(text, "$")) {
    const size_t end = std::min(text.find(' '), text.size());
    const auto named = names_.find(text.substr(0, end));
    if (named == names_.end()) return nullptr;
    text.remove_prefix(end);
    std::string_view tensor = named->second;
    return add_tensor(tensor, output);
  }
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

bool take_definition(std::string_view line, CaseNames& names) {
  const size_t equals = line.find(" = ");
  if (!line.starts_with('$') || equals == std::string_view::npos) return false;
  names.insert_or_assign(std::string(line.substr(1, equals - 1)),
                         std::string(line.substr(equals + 3)));
  return true;
}

std::string check_case(std::string_view line, const CaseNames& names) {
  const size_t space = line.find(' '), arrow = line.find(" -> ");
  if (space == std::string_view::npos || arrow == std::string_view::npos) return "no case";
  const std::string_view name = line.substr(0, space);
  std::string_view input = line.substr(space, arrow - space);
  std::string_view output = line.substr(arrow + 4);
  const KernelEntry* kernel = find_kernel_of_target(name);
  if (!kernel) return "no such kernel";
  const AccuracyRow* accuracy = find_accuracy(name);

  CaseValues values(names);
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
  std::string_view terms;
  if (const size_t at = output.find(" ~ "); at != std::string_view::npos) {
    terms = output.substr(at + 3);
    output = output.substr(0, at);
  }
  std::vector<const Value*> expected, magnitudes;
  for (skip_spaces(terms); !terms.empty(); skip_spaces(terms)) {
    magnitudes.push_back(values.add(terms, false));
    if (!magnitudes.back()) return "malformed magnitude";
  }
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
  // Results that are numbers are returned, and no arguments.
  const auto is_number = [](const Value* v) {
    return v->get<int64_t>() != nullptr || v->get<double>() != nullptr || v->get<bool>() != nullptr;
  };
  const auto returned = std::count_if(arguments.begin() + static_cast<ptrdiff_t>(first_result),
                                      arguments.end(), is_number);
  const size_t count = arguments.size() - static_cast<size_t>(returned);
  if (!error && count != kernel->argument_count) {
    return "has " + std::to_string(count) + " arguments; registered with " +
           std::to_string(kernel->argument_count);
  }
  // What the call reads in place is gone when it is compared.
  const std::vector<Value*> inputs(arguments.begin() + (in_place ? 1 : 0),
                                   arguments.begin() + static_cast<ptrdiff_t>(first_result));
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
    const std::string difference = compare(got, *expected[i], accuracy,
                                           i < magnitudes.size() ? magnitudes[i] : nullptr, inputs);
    if (!difference.empty()) return "result " + std::to_string(i) + ": " + difference;
  }
  // Results come after the arguments; the schema counts outputs, but numbers of prim ops not.
  if (kernel->argument_count > arguments.size() ||
      kernel->argument_count + expected.size() < arguments.size()) {
    return "argument_count is " + std::to_string(kernel->argument_count);
  }
  return "";
}

Status run_case(std::string_view line) {
  const auto malformed = [&] {
    return error(Code::kInternal, "malformed line: %s", std::string(line).c_str());
  };
  const size_t space = line.find(' '), arrow = line.find(" -> ");
  if (space == std::string_view::npos || arrow == std::string_view::npos) return malformed();
  const KernelEntry* kernel = find_kernel_of_target(line.substr(0, space));
  if (!kernel) return error(Code::kInternal, "no such kernel");
  std::string_view input = line.substr(space, arrow - space), output = line.substr(arrow + 4);
  const CaseNames no_names;
  CaseValues values(no_names);
  std::vector<Value*> arguments;
  for (skip_spaces(input); !input.empty(); skip_spaces(input)) {
    arguments.push_back(values.add(input, false));
    if (!arguments.back()) return malformed();
  }
  for (skip_spaces(output); !output.empty() && !output.starts_with("self="); skip_spaces(output)) {
    arguments.push_back(values.add(output, true));
    if (!arguments.back()) return malformed();
  }
  KernelContext context(kernel->name, arguments);
  return kernel->function(context);
}

}  // namespace edgewise::testing
