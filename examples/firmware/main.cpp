// Runs model.pte, which lies in flash, on one input, and prints the outputs: bits in hexadecimal,
// and as numbers. Nothing is allocated but from edgewise_memory.
#include <cstdint>
#include <cstring>

#include "board.h"
#include "edgewise/firmware.h"
#include "edgewise/program.h"
#include "model.h"

extern "C" {
alignas(64) unsigned char edgewise_memory[FIRMWARE_MEMORY];
const size_t edgewise_memory_bytes = sizeof(edgewise_memory);
extern const std::byte firmware_input[], firmware_input_end[];

void edgewise_log(const char* message) {
  board_print(message);
  board_print("\n");
}

void edgewise_out_of_memory(size_t) { board_print("edgewise_memory is too small\n"); }
}

namespace {

void print_unsigned(uint32_t number) {
  char text[11];
  char* at = text + sizeof(text) - 1;
  *at = '\0';
  do {
    *--at = static_cast<char>('0' + number % 10);
    number /= 10;
  } while (number != 0);
  board_print(at);
}

void print_line(const char* name, uint32_t number) {
  board_print(name);
  board_print(": ");
  print_unsigned(number);
  board_print("\n");
}

void print_float(float number) {
  uint32_t bits = 0;
  std::memcpy(&bits, &number, sizeof(bits));
  char text[] = "0x00000000 ";
  for (int i = 0; i < 8; ++i) text[9 - i] = "0123456789abcdef"[bits >> (4 * i) & 15];
  board_print(text);
  if (number < 0) board_print("-");
  const double size = number < 0 ? -static_cast<double>(number) : static_cast<double>(number);
  const auto millionths = static_cast<uint32_t>(size * 1e6 + 0.5);  // of logits, a few units
  print_unsigned(millionths / 1'000'000);
  char rest[] = ".000000\n";
  for (uint32_t i = 6, left = millionths % 1'000'000; i > 0; --i, left /= 10) {
    rest[i] = static_cast<char>('0' + left % 10);
  }
  board_print(rest);
}

int fail(const edgewise::Status& status) {
  board_print(status.message().c_str());
  board_print("\n");
  return 1;
}

}  // namespace

int main() {
  using namespace edgewise;
  print_line("registered", edgewise_memory_used());
  const auto* file = reinterpret_cast<const std::byte*>(model_pte);
  auto program = Program::load_in_place({file, MODEL_PTE_BYTES}, {});
  if (!program) return fail(program.status());
  auto method = (*program)->load_method("forward");
  if (!method) return fail(method.status());
  print_line("loaded", edgewise_memory_used());

  const ValueInfo& rule = (*method)->info().inputs[0];
  if (static_cast<size_t>(firmware_input_end - firmware_input) != rule.nbytes) {
    board_print("the input has another size than the model's\n");
    return 1;
  }
  auto input = Tensor::make(rule.type, rule.sizes, rule.dim_order,
                            const_cast<std::byte*>(firmware_input), rule.nbytes, rule.dynamism);
  if (!input) return fail(input.status());
  const Value value(std::move(*input));
  size_t after_first = 0;
  for (int run = 0; run < 3; ++run) {
    const size_t calls = edgewise_memory_calls(), used = edgewise_memory_used();
    if (Status status = (*method)->set_input(0, value); !status.ok()) return fail(status);
    print_line("taken for the input", edgewise_memory_calls() - calls);
    if (Status status = (*method)->execute(); !status.ok()) return fail(status);
    print_line("taken by kernels", edgewise_memory_calls() - calls);
    print_line("kept", edgewise_memory_used() - used);
    if (run == 0) after_first = edgewise_memory_peak();
  }
  print_line("grown", edgewise_memory_peak() - after_first);
  const Tensor* output = (*method)->output(0)->get<Tensor>();
  if (output == nullptr || output->type() != ScalarType::kFloat) return 1;
  for (int64_t i = 0; i < output->numel(); ++i) print_float(output->data<float>()[i]);
  print_line("peak", edgewise_memory_peak());
  print_line("stack", board_stack_used());
  return 0;
}
