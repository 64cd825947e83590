// A payload for XNNPACK: a delegate is made of it, and run with values as its graph says, twice;
// the second time of half the rows.
#include <array>
#include <cstring>
#include <vector>

#include "backends/xnnpack/payload.h"
#include "backends/xnnpack/read_graph.h"
#include "edgewise/backend.h"
#include "edgewise/value.h"
#include "target.h"

namespace edgewise::fuzz {
namespace {

constexpr size_t kMostInput = 1 << 20;  // bytes: of more, the delegate is not run
constexpr size_t kMostMemory = size_t{64} << 20;
constexpr uint32_t kMostArguments = 64;

// Weights of any name: bytes that are small numbers in most types.
class Weights final : public NamedData {
 public:
  Weights() { std::memset(bytes_.data(), 0x3c, bytes_.size()); }
  Result<std::span<const std::byte>> find(std::string_view key) const override {
    if (key.empty()) return error(Code::kInvalidProgram, "[fuzz] no such data");
    return std::span<const std::byte>(bytes_);
  }

 private:
  alignas(kBufferAlignment) std::array<std::byte, 4096> bytes_;
};

struct Argument {
  std::vector<std::byte> memory;
  Value value;
};

bool fill(Argument* argument, const xnnpack::GraphValue& value, bool is_half) {
  constexpr std::array kTypes = {ScalarType::kFloat, ScalarType::kHalf, ScalarType::kChar,
                                 ScalarType::kByte,  ScalarType::kInt,  ScalarType::kLong};
  std::vector<int64_t> sizes;
  for (size_t i = 0; i < value.shape.rank; ++i) {
    sizes.push_back(static_cast<int64_t>(value.shape[i]));
  }
  if (is_half && !sizes.empty()) sizes[0] = (sizes[0] + 1) / 2;
  for (const ScalarType type : kTypes) {
    if (!xnnpack::accepts(value.type, type) && !(value.is_index && type == ScalarType::kLong)) {
      continue;
    }
    size_t bytes = element_size(type);
    for (const int64_t size : sizes) {
      if (__builtin_mul_overflow(bytes, static_cast<size_t>(size), &bytes)) return false;
      if (bytes > kMostInput) return false;
    }
    argument->memory.assign(bytes + (value.is_input ? kReadPadding : 0), std::byte{0x3c});
    const auto tensor = Tensor::make(type, sizes, {}, argument->memory.data(), bytes,
                                     value.is_input ? Dynamism::kStatic : Dynamism::kDynamicBound);
    if (!tensor.ok()) return false;
    argument->value = Value(*tensor);
    return true;
  }
  return false;
}

}  // namespace

void run_one(std::span<const std::byte> bytes) {
  static const std::shared_ptr<Backend> backend = find_backend("XnnpackBackend");
  static const Weights weights;
  static std::shared_ptr<BackendProgramState> state;
  if (backend == nullptr || !backend->is_available()) __builtin_trap();
  state = nullptr;  // each payload is a program
  DelegateInit init;
  init.payload = bytes;
  init.named_data = &weights;
  init.method = "forward";
  init.max_memory = kMostMemory;
  init.program_state = &state;
  const auto delegate = backend->init(init);
  if (!delegate.ok()) return;
  const auto payload = xnnpack::open_payload(bytes);
  if (!payload.ok()) __builtin_trap();
  const auto graph = xnnpack::read_graph(*payload, &weights);
  if (!graph.ok()) __builtin_trap();
  if (graph->externals > kMostArguments) return;
  for (const bool is_half : {false, true}) {
    std::vector<Argument> arguments(graph->externals);
    std::vector<Value*> given;
    for (Argument& argument : arguments) given.push_back(&argument.value);
    for (const std::vector<uint32_t>* indices : {&graph->inputs, &graph->outputs}) {
      for (const uint32_t index : *indices) {
        const xnnpack::GraphValue& value = graph->values[index];
        const bool shrinks = is_half && value.is_input;
        if (!fill(&arguments[value.external_id], value, shrinks)) return;
      }
    }
    if (!(*delegate)->execute(given).ok() && !is_half) return;
  }
}

}  // namespace edgewise::fuzz
