// Running methods: calls, moves, jumps, state, delegates, failures.
#include <gtest/gtest.h>

#include <thread>

#include "test_program.h"

namespace edgewise::test {
namespace {

using fb::TensorShapeDynamism;

std::unique_ptr<Method> load_forward(const FileSpec& spec) {
  const auto program = load(spec);
  EXPECT_TRUE(program.ok()) << program.status().message();
  if (!program) return nullptr;
  auto method = program.value()->load_method("forward");
  EXPECT_TRUE(method.ok()) << method.status().message();
  return method.ok() ? std::move(*method) : nullptr;
}

Status run(Method& method, std::vector<float> x) {
  EDGEWISE_RETURN_IF_ERROR(
      method.set_input(0, over(x, ScalarType::kFloat, {static_cast<int64_t>(x.size())})));
  return method.execute();
}

TEST(Execute, CallsKernels) {
  const auto method = load_forward(add_file());
  ASSERT_TRUE(run(*method, {1, 2, 3, 4}).ok());
  EXPECT_EQ(floats(method->output(0)), (std::vector<float>{11, 22, 33, 44}));
  ASSERT_TRUE(run(*method, {0, 0, 0, 0}).ok());
  EXPECT_EQ(floats(method->output(0)), (std::vector<float>{10, 20, 30, 40}));
  EXPECT_EQ(method->output(1), nullptr);
}

// Tensors that the file does not plan do not share memory.
TEST(Execute, KeepsTensorsWithoutAPlanApart) {
  FileSpec spec = add_file();
  MethodSpec& method = spec.methods[0];
  method.values[2] = tensor({.sizes = {4}});
  method.values.push_back(tensor({.sizes = {4}}));
  method.instructions.push_back(kernel(0, {2, 1, 3, 3}));
  method.outputs = {2, 3};
  const auto running = load_forward(spec);
  ASSERT_TRUE(run(*running, {1, 2, 3, 4}).ok());
  EXPECT_EQ(floats(running->output(0)), (std::vector<float>{11, 22, 33, 44}));
  EXPECT_EQ(floats(running->output(1)), (std::vector<float>{21, 42, 63, 84}));
}

TEST(Execute, WritesNoConstant) {
  FileSpec spec = add_file();
  spec.methods[0].instructions = {kernel(0, {0, 1, 1, 1})};
  const Status status = run(*load_forward(spec), {1, 2, 3, 4});
  EXPECT_EQ(status.code(), Code::kInvalidProgram);
  EXPECT_NE(status.message().find("constant"), std::string::npos) << status.message();
  // Delegates resize their outputs, which refuses, too.
  spec.methods[0].delegates = {{"TestBackend"}};
  spec.methods[0].instructions = {delegate(0, {0, 1})};
  EXPECT_NE(run(*load_forward(spec), {1, 2, 3, 4}).message().find("cannot be written"),
            std::string::npos);
}

TEST(Execute, KeepsWhatIsWrittenToAnInput) {
  const auto reads = load_forward(add_file());
  ASSERT_TRUE(run(*reads, {1, 2, 3, 4}).ok());
  EXPECT_EQ(reads->written_input(0), nullptr);
  EXPECT_EQ(reads->written_input(1), nullptr);

  FileSpec spec = add_file();
  spec.methods[0].instructions = {kernel(0, {0, 1, 0, 0}), kernel(0, {0, 1, 2, 2})};
  const auto writes = load_forward(spec);
  ASSERT_NE(writes->written_input(0), nullptr);
  std::vector<float> given{1, 2, 3, 4};
  ASSERT_TRUE(writes->set_input_zero_copy(0, over(given, ScalarType::kFloat, {4})).ok());
  ASSERT_TRUE(writes->execute().ok());
  EXPECT_EQ(floats(writes->written_input(0)), (std::vector<float>{11, 22, 33, 44}));
  EXPECT_EQ(floats(writes->output(0)), (std::vector<float>{21, 42, 63, 84}));
  EXPECT_EQ(given, (std::vector<float>{1, 2, 3, 4}));
}

TEST(Execute, SaysWhereItFailed) {
  FileSpec spec = add_file();
  MethodSpec& method = spec.methods[0];
  method.operators = {{"test::add", "out"}, {"test::fail", "out"}, {"test::throws", "out"}};
  method.instructions = {kernel(0, {0, 1, 2, 2}), kernel(1, {2, 2})};
  EXPECT_EQ(run(*load_forward(spec), {1, 2, 3, 4}).message(),
            "[forward: instruction 1, test::fail.out] [test::fail.out] as asked for");
  method.instructions = {kernel(2, {2, 2})};
  const Status thrown = run(*load_forward(spec), {1, 2, 3, 4});
  EXPECT_EQ(thrown.code(), Code::kInternal);
  EXPECT_NE(thrown.message().find("thrown"), std::string::npos);
}

TEST(Execute, RunsDelegates) {
  FileSpec spec = add_file();
  MethodSpec& method = spec.methods[0];
  method.delegates = {{"TestBackend", fb::DataLocation::SEGMENT, 1},
                      {"TestBackend", fb::DataLocation::SEGMENT, 1}};
  method.instructions = {delegate(0, {0, 2})};
  spec.segments.push_back(bytes_of<char>({'n', 'a', 'm', 'e', 'd'}));
  EXPECT_NE(load(spec).value()->load_method("forward").status().message().find(
                "[forward: delegate 0 of TestBackend]"),
            std::string::npos);
  spec.named_data = {{"key", 1}};
  backend_log() = {};
  const auto loaded = load_forward(spec);
  EXPECT_EQ(backend_log().inits, 2);
  EXPECT_EQ(backend_log().states, 1);  // shared by the program's delegates
  EXPECT_EQ(backend_log().threads, 1);
  EXPECT_EQ(backend_log().method, "forward");
  ASSERT_TRUE(run(*loaded, {1, 2, 3, 4}).ok());
  EXPECT_EQ(floats(loaded->output(0)), (std::vector<float>{2, 4, 6, 8}));
  EXPECT_EQ(loaded->info().delegates[0].payload_bytes, 5u);

  spec.segments[1] = bytes_of<char>({'l', 'a', 't', 'e'});
  EXPECT_EQ(run(*load_forward(spec), {1, 2, 3, 4}).message(),
            "[forward: instruction 0, delegate 0 of TestBackend] late, as asked for");
  spec.segments[1] = bytes_of<char>({'b', 'a', 'd'});
  const Status bad = load(spec).value()->load_method("forward").status();
  EXPECT_EQ(bad.message(), "[forward: delegate 0 of TestBackend] bad, as asked for");
}

TEST(Execute, TakesPayloadsInsideOfTheFlatbuffer) {
  FileSpec spec = add_file();
  spec.inline_payloads = {{}, bytes_of<char>({'l', 'a', 't', 'e'})};
  spec.methods[0].delegates = {{"TestBackend", fb::DataLocation::INLINE, 0}};
  spec.methods[0].instructions = {delegate(0, {0, 2})};
  const auto empty = load_forward(spec);
  EXPECT_EQ(empty->info().delegates[0].payload_bytes, 0u);
  ASSERT_TRUE(run(*empty, {1, 2, 3, 4}).ok());
  EXPECT_EQ(floats(empty->output(0)), (std::vector<float>{2, 4, 6, 8}));

  spec.methods[0].delegates[0].index = 1;
  const auto late = load_forward(spec);
  EXPECT_EQ(late->info().delegates[0].payload_bytes, 4u);
  EXPECT_EQ(run(*late, {1, 2, 3, 4}).message(),
            "[forward: instruction 0, delegate 0 of TestBackend] late, as asked for");
}

// if x[0] > 0: y = x + c, else y = x + x, as exported conditions become: the flag moves.
FileSpec branch_file() {
  FileSpec spec = add_file();
  MethodSpec& method = spec.methods[0];
  method.values.push_back(boolean(false));  // 3
  method.values.push_back(boolean(false));  // 4: always false
  method.operators = {{"test::add", "out"}, {"test::positive", ""}};
  method.instructions = {kernel(1, {0, 3}), jump_false(3, 4), kernel(0, {0, 1, 2, 2}),
                         jump_false(4, 5), kernel(0, {0, 0, 2, 2})};
  return spec;
}

TEST(Execute, Jumps) {
  const auto method = load_forward(branch_file());
  ASSERT_TRUE(run(*method, {1, 2, 3, 4}).ok());
  EXPECT_EQ(floats(method->output(0)), (std::vector<float>{11, 22, 33, 44}));
  ASSERT_TRUE(run(*method, {-1, 2, 3, 4}).ok());
  EXPECT_EQ(floats(method->output(0)), (std::vector<float>{-2, 4, 6, 8}));
}

TEST(Execute, JumpsOnTensors) {
  FileSpec spec = add_file();
  MethodSpec& method = spec.methods[0];
  method.values.push_back(
      tensor({.sizes = {2}, .memory_id = 1, .offset = 100, .type = fb::ScalarType::BOOL}));
  method.inputs = {0, 3};
  method.instructions = {jump_false(3, 2), kernel(0, {0, 1, 2, 2})};
  const auto loaded = load_forward(spec);
  std::vector<uint8_t> flags = {1, 1};
  ASSERT_TRUE(loaded->set_input(1, over(flags, ScalarType::kBool, {2})).ok());
  ASSERT_TRUE(run(*loaded, {1, 2, 3, 4}).ok());
  EXPECT_EQ(floats(loaded->output(0))[0], 11);
  flags = {1, 0};
  ASSERT_TRUE(loaded->set_input(1, over(flags, ScalarType::kBool, {2})).ok());
  ASSERT_TRUE(run(*loaded, {5, 2, 3, 4}).ok());
  EXPECT_EQ(floats(loaded->output(0))[0], 11);  // not written again

  method.instructions = {jump_false(0, 1)};
  const auto wrong = load_forward(spec);
  ASSERT_TRUE(wrong->set_input(1, over(flags, ScalarType::kBool, {2})).ok());
  EXPECT_NE(run(*wrong, {1, 2, 3, 4}).message().find("must be a bool; value 0 is float32[4]"),
            std::string::npos);
}

TEST(Execute, IsCancelledByACheckOfTheCaller) {
  FileSpec spec = branch_file();
  // Back to the start as long as x[0] is not positive.
  spec.methods[0].instructions = {kernel(1, {0, 3}), jump_false(3, 0), kernel(0, {0, 1, 2, 2})};
  const auto method = load_forward(spec);
  int asked = 0;
  method->set_cancel_check([&asked] { return ++asked == 3; });
  const Status status = run(*method, {-1, 2, 3, 4});
  EXPECT_EQ(status.code(), Code::kCancelled) << status.message();
  EXPECT_NE(status.message().find("cancelled"), std::string::npos) << status.message();
  EXPECT_EQ(asked, 3);
  // The method runs again, with a check or without.
  for (const bool with_check : {true, false}) {
    if (!with_check) method->set_cancel_check({});
    ASSERT_TRUE(run(*method, {1, 2, 3, 4}).ok());
    EXPECT_EQ(floats(method->output(0)), (std::vector<float>{11, 22, 33, 44}));
  }
}

// y has a shape that only the run tells; z is a moved copy.
FileSpec unbound_file() {
  FileSpec spec = add_file();
  MethodSpec& method = spec.methods[0];
  method.values = {integer(3),
                   tensor({.sizes = {9}, .dynamism = TensorShapeDynamism::DYNAMIC_UNBOUND}),
                   tensor({.sizes = {9}, .dynamism = TensorShapeDynamism::DYNAMIC_UNBOUND})};
  method.inputs = {0};
  method.outputs = {1, 2};
  method.operators = {{"test::ramp", "out"}};
  method.instructions = {kernel(0, {0, 1, 1}), move(1, 2)};
  return spec;
}

TEST(Execute, AllocatesUnboundTensors) {
  const auto method = load_forward(unbound_file());
  for (const int64_t count : {3, 300, 5, 0}) {
    ASSERT_TRUE(method->set_input(0, Value(count)).ok());
    ASSERT_TRUE(method->execute().ok());
    const std::vector<float> moved = floats(method->output(1));
    ASSERT_EQ(moved.size(), static_cast<size_t>(count));
    EXPECT_EQ(floats(method->output(0)), moved);
    EXPECT_TRUE(moved.empty() || moved.back() == static_cast<float>(count - 1));
  }
}

TEST(Execute, FreesUnboundTensors) {
  FileSpec spec = unbound_file();
  spec.methods[0].instructions.push_back(free_value(1));
  const auto method = load_forward(spec);
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(method->execute().ok());
    EXPECT_TRUE(floats(method->output(0)).empty());
    EXPECT_EQ(floats(method->output(1)), (std::vector<float>{0, 1, 2}));
  }
}

TEST(Execute, BoundsDynamicShapes) {
  FileSpec spec = unbound_file();
  spec.methods[0].values[1] =
      tensor({.sizes = {4}, .memory_id = 1, .dynamism = TensorShapeDynamism::DYNAMIC_BOUND});
  const auto method = load_forward(spec);
  ASSERT_TRUE(method->set_input(0, Value(int64_t{2})).ok());
  ASSERT_TRUE(method->execute().ok());
  EXPECT_EQ(floats(method->output(0)), (std::vector<float>{0, 1}));
  ASSERT_TRUE(method->set_input(0, Value(int64_t{5})).ok());
  EXPECT_NE(method->execute().message().find("20 bytes are needed and 16 are planned"),
            std::string::npos);
  ASSERT_TRUE(method->set_input(0, Value(int64_t{-1})).ok());
  EXPECT_NE(method->execute().message().find("negative"), std::string::npos);
}

// state += x; y = state + c
FileSpec state_file(bool initial) {
  FileSpec spec = add_file();
  MethodSpec& method = spec.methods[0];
  method.values.push_back(
      tensor({.sizes = {4}, .memory_id = 1, .offset = 80, .data = initial ? 1u : 0u}));
  method.operators = {{"test::add", "out"}, {"test::add_", ""}};
  method.instructions = {kernel(1, {3, 0, 3}), kernel(0, {3, 1, 2, 2})};
  if (initial) {
    spec.segments.push_back(bytes_of<float>({1, 2, 3, 4}));
    spec.mutable_offsets = {0, 0};
  }
  return spec;
}

TEST(Execute, KeepsAndResetsState) {
  for (const bool initial : {false, true}) {
    const auto method = load_forward(state_file(initial));
    const float first = initial ? 12.0f : 11.0f;
    for (int round = 0; round < 2; ++round) {
      ASSERT_TRUE(run(*method, {1, 1, 1, 1}).ok());
      EXPECT_EQ(floats(method->output(0))[0], first);
      ASSERT_TRUE(run(*method, {1, 1, 1, 1}).ok());
      EXPECT_EQ(floats(method->output(0))[0], first + 1);
      ASSERT_TRUE(method->reset().ok());
      EXPECT_FALSE(method->execute().ok());  // inputs are to be set again
    }
  }
}

TEST(Execute, MethodsAreIndependentAndKeepTheirProgram) {
  auto program = load(state_file(true)).value();
  auto first = program->load_method("forward");
  auto second = program->load_method("forward");
  ASSERT_TRUE(first.ok() && second.ok());
  program.reset();
  ASSERT_TRUE(run(**first, {1, 1, 1, 1}).ok());
  ASSERT_TRUE(run(**first, {1, 1, 1, 1}).ok());
  ASSERT_TRUE(run(**second, {1, 1, 1, 1}).ok());
  EXPECT_EQ(floats((*first)->output(0))[0], 13);
  EXPECT_EQ(floats((*second)->output(0))[0], 12);
}

TEST(Execute, RunsMethodsInThreads) {
  FileSpec spec = add_file();
  spec.methods[0].delegates = {{"TestBackend"}};
  spec.methods[0].instructions = {kernel(0, {0, 1, 2, 2}), delegate(0, {0, 2})};
  const auto program = load(spec).value();
  std::vector<std::thread> threads;
  std::vector<int> wrong(4, 0);
  for (size_t t = 0; t < wrong.size(); ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 50; ++i) {
        auto method = program->load_method("forward");
        const float x = static_cast<float>(t);
        if (!method || !run(**method, {x, x, x, x}).ok() ||
            floats((*method)->output(0))[0] != 2 * x) {
          ++wrong[t];
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(4, 0));
}

}  // namespace
}  // namespace edgewise::test
