// A `.pte` file: loaded, described, each method set up, run with zeros, reset and run again.
#include <chrono>
#include <string>
#include <vector>

#include "edgewise/program.h"
#include "target.h"

namespace edgewise::fuzz {
namespace {

constexpr size_t kMostInput = 1 << 18;  // bytes: of larger inputs, the method is not run
constexpr size_t kMostMemory = size_t{16} << 20;
constexpr std::chrono::milliseconds kMostTime{3};  // of a run: loops may be without end

using Clock = std::chrono::steady_clock;

bool set_inputs(Method& method, std::vector<std::vector<std::byte>>& memory) {
  const MethodInfo& info = method.info();
  for (size_t i = 0; i < info.inputs.size(); ++i) {
    const ValueInfo& input = info.inputs[i];
    Value value;
    if (input.kind == "Tensor") {
      if (input.nbytes > kMostInput) return false;
      auto& zeros = memory.emplace_back(input.nbytes);
      const Result<Tensor> tensor = Tensor::make(input.type, input.sizes, input.dim_order,
                                                 zeros.data(), zeros.size(), Dynamism::kStatic);
      if (!tensor.ok()) return false;
      value = Value(*tensor);
    } else if (input.kind == "int") {
      value = Value(Value::Variant(int64_t{1}));
    } else if (input.kind == "float") {
      value = Value(Value::Variant(0.5));
    } else if (input.kind == "bool") {
      value = Value(Value::Variant(true));
    }
    // Half of them without a copy, as an application gives an image.
    const Status status =
        i % 2 == 0 ? method.set_input_zero_copy(i, value) : method.set_input(i, value);
    if (!status.ok()) return false;
  }
  return true;
}

void run_method(Method& method) {
  // Loops may be long: of a hostile file they are ended as an application would.
  Clock::time_point end;
  method.set_cancel_check([&end] { return Clock::now() > end; });
  for (int round = 0; round < 2; ++round) {
    std::vector<std::vector<std::byte>> memory;
    if (!set_inputs(method, memory)) return;
    end = Clock::now() + kMostTime;
    if (!method.execute().ok()) return;
    for (size_t i = 0; i < method.info().outputs.size(); ++i) {
      const Value* output = method.output(i);
      if (output != nullptr) (void)output->kind();
    }
    if (!method.reset().ok()) return;
  }
}

}  // namespace

void run_one(std::span<const std::byte> bytes) {
  const auto program = Program::load_bytes(bytes, {.threads = 1, .max_memory = kMostMemory});
  if (!program) return;
  for (const std::string& name : program.value()->method_names()) {
    (void)program.value()->method_info(name);
    const auto method = program.value()->load_method(name);
    if (method) run_method(*method.value());
  }
}

}  // namespace edgewise::fuzz
