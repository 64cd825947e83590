// Damaged files: whatever the bytes, loading and running end in a status. Under the
// sanitizers this also finds reads outside of the file.
#include <gtest/gtest.h>

#include "test_program.h"

namespace edgewise::test {
namespace {

// A bit of everything but backward jumps, which a flipped bit could make endless.
FileSpec rich_file() {
  FileSpec file = add_file();
  MethodSpec& method = file.methods[0];
  using fb::TensorShapeDynamism;
  method.values.insert(
      method.values.end(),
      {tensor({.sizes = {4}, .memory_id = 1, .offset = 128, .data = 1}),               // 3
       tensor({.sizes = {8}, .dynamism = TensorShapeDynamism::DYNAMIC_UNBOUND}),       // 4
       integer(3), number(0.5), text("abc"), none(), int_list({5, 5}),                 // 5-9
       tensor_list({0, 2}), optional_tensor_list({-1, 0, 8}), boolean(true),           // 10-12
       tensor({.sizes = {2, 2}, .memory_id = 1, .offset = 192, .dim_order = {1, 0}}),  // 13
       tensor({.sizes = {4},
               .memory_id = 1,
               .offset = 256,
               .dynamism = TensorShapeDynamism::DYNAMIC_BOUND})});  // 14
  method.arenas = {0, 320};
  method.outputs = {2, 4, 5, 14};
  method.operators = {{"test::add", "out"}, {"test::ramp", "out"}, {"test::add_", ""}};
  method.delegates = {{"TestBackend", fb::DataLocation::SEGMENT, 2}};
  method.instructions = {kernel(0, {0, 1, 2, 2}), kernel(2, {3, 2, 3}), kernel(1, {5, 4, 4}),
                         delegate(0, {2, 14}),    move(12, 8),          free_value(4)};
  file.segments = {bytes_of<float>({10, 20, 30, 40}), bytes_of<float>({1, 1, 1, 1}),
                   bytes_of<char>({'n', 'a', 'm', 'e', 'd'})};
  file.mutable_offsets = {0, 0};
  file.named_data = {{"key", 0}};
  return file;
}

// Loads, describes and runs; returns whether all of it went well.
bool try_file(std::span<const std::byte> bytes) {
  const auto program = Program::load_bytes(bytes, {.threads = 1});
  if (!program) {
    EXPECT_FALSE(program.status().message().empty());
    return false;
  }
  bool ok = true;
  for (const std::string& name : program.value()->method_names()) {
    const MethodInfo info = program.value()->method_info(name).value();
    const auto method = program.value()->load_method(name);
    if (!method) {
      ok = false;
      continue;
    }
    std::vector<std::byte> zeros;
    for (size_t i = 0; i < info.inputs.size(); ++i) {
      const ValueInfo& input = info.inputs[i];
      if (input.kind != "Tensor" || input.nbytes > 1 << 20) continue;
      zeros.assign(input.nbytes, std::byte{0});
      Result<Tensor> tensor =
          Tensor::make(input.type, input.sizes, {}, zeros.data(), zeros.size(), Dynamism::kStatic);
      ok = tensor.ok() && method.value()->set_input(i, Value(*tensor)).ok() && ok;
    }
    ok = method.value()->execute().ok() && ok;
    for (size_t i = 0; i < info.outputs.size(); ++i) {
      EXPECT_NE(method.value()->output(i), nullptr);
      method.value()->bind_output(i, nullptr, 0);
    }
    ok = method.value()->reset().ok() && ok;
  }
  return ok;
}

TEST(Damage, TheFileIsRight) {
  const Bytes file = make_file(rich_file());
  const auto program = Program::load_bytes(file, {});
  ASSERT_TRUE(program.ok()) << program.status().message();
  EXPECT_TRUE(try_file(file));
}

TEST(Damage, TruncationAtEveryLength) {
  const Bytes file = make_file(rich_file());
  for (size_t length = 0; length < file.size(); ++length) {
    // A copy of its own, so that the sanitizer knows the end.
    const Bytes head(file.begin(), file.begin() + static_cast<ptrdiff_t>(length));
    EXPECT_FALSE(Program::load_bytes(head, {}).ok()) << length;
  }
}

TEST(Damage, EveryBitFlipped) {
  Bytes file = make_file(rich_file());
  size_t refused = 0;
  for (size_t i = 0; i < file.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      const auto mask = static_cast<std::byte>(1 << bit);
      file[i] ^= mask;
      if (!try_file(file)) ++refused;
      file[i] ^= mask;
    }
  }
  EXPECT_GT(refused, file.size());
}

TEST(Damage, EveryByteAndWordReplaced) {
  const Bytes original = make_file(rich_file());
  for (size_t i = 0; i < original.size(); ++i) {
    for (const uint8_t value : {0x00, 0x01, 0x7f, 0x80, 0xff}) {
      Bytes file = original;
      file[i] = std::byte{value};
      try_file(file);
      if (i % 4 != 0 || i + 4 > file.size()) continue;
      for (size_t j = i; j < i + 4; ++j) file[j] = std::byte{value};
      try_file(file);
    }
  }
}

}  // namespace
}  // namespace edgewise::test
