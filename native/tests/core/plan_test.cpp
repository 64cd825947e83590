// What the flatbuffers verifier does not know: indices, extents, kinds, limits. One row
// each: a change to a program that is right, and what the failure says.
#include <gtest/gtest.h>

#include <functional>

#include "test_program.h"

namespace edgewise::test {
namespace {

struct PlanCase {
  const char* name;
  std::function<void(FileSpec&)> change;
  const char* message;
};

MethodSpec& method(FileSpec& file) { return file.methods[0]; }

// Replaces the output, value 2.
std::function<void(FileSpec&)> output(const TensorSpec& spec) {
  return [=](FileSpec& file) { method(file).values[2] = tensor(spec); };
}
std::function<void(FileSpec&)> constant(const TensorSpec& spec) {
  return [=](FileSpec& file) { method(file).values[1] = tensor(spec); };
}
std::function<void(FileSpec&)> value(const MakeValue& extra) {
  return [=](FileSpec& file) { method(file).values.push_back(extra); };
}
std::function<void(FileSpec&)> instruction(const MakeInstruction& extra) {
  return [=](FileSpec& file) { method(file).instructions.push_back(extra); };
}

const std::vector<PlanCase>& cases() {
  using fb::ScalarType;
  using fb::TensorShapeDynamism;
  static const std::vector<PlanCase> all = {
      {"negative size", output({.sizes = {-4}, .memory_id = 1}), "must not be negative"},
      {"size overflow", output({.sizes = {1 << 30, 1 << 30, 1 << 30}, .memory_id = 1}),
       "too many elements"},
      {"overflow behind a zero", output({.sizes = {0, 1 << 30, 1 << 30, 1 << 30}, .memory_id = 1}),
       "too many elements"},
      {"rank", output({.sizes = std::vector<int32_t>(17, 1), .memory_id = 1}), "dimensions"},
      {"dim_order", output({.sizes = {2, 2}, .memory_id = 1, .dim_order = {0, 0}}), "permutation"},
      {"dim_order length", output({.sizes = {4}, .memory_id = 1, .dim_order = {0, 1}}),
       "one entry"},
      {"storage_offset", output({.sizes = {4}, .memory_id = 1, .storage_offset = 1}),
       "storage_offset must be 0"},
      {"layout", output({.sizes = {4}, .memory_id = 1, .layout = 1}), "layout"},
      {"type", output({.sizes = {4}, .memory_id = 1, .type = ScalarType::BITS16}), "element type"},
      {"type number", output({.sizes = {4}, .memory_id = 1, .type = static_cast<ScalarType>(99)}),
       "element type 99"},
      {"dynamism",
       output({.sizes = {4}, .memory_id = 1, .dynamism = static_cast<TensorShapeDynamism>(7)}),
       "dynamism 7"},
      {"memory 0", output({.sizes = {4}, .memory_id = 0}), "memory_id must be in 1..1; got 0"},
      {"memory 2", output({.sizes = {4}, .memory_id = 2}), "memory_id must be in 1..1; got 2"},
      {"offset", output({.sizes = {4}, .memory_id = 1, .offset = 116}), "do not fit"},
      {"high offset", output({.sizes = {4}, .memory_id = 1, .offset = uint64_t{1} << 40}),
       "do not fit"},
      {"odd offset", output({.sizes = {4}, .memory_id = 1, .offset = 2}), "not aligned"},
      {"external", output({.sizes = {4}, .external = true}), "another file (.ptd)"},
      {"constant index", constant({.sizes = {4}, .data = 9}), "entry 9 does not exist"},
      {"constant size", constant({.sizes = {5}, .data = 1}), "20 bytes at offset 0"},
      {"unbound constant",
       constant({.sizes = {4}, .data = 1, .dynamism = TensorShapeDynamism::DYNAMIC_UNBOUND}),
       "unbound"},
      {"no initial values", output({.sizes = {4}, .memory_id = 1, .data = 1}),
       "mutable data list 0 does not exist"},
      {"odd constant",
       [](FileSpec& file) {
         file.segments[0].resize(32);
         file.constant_offsets = {0, 2};
       },
       "not aligned for float32"},
      {"constant offset",
       [](FileSpec& file) {
         file.constant_offsets = {0, UINT64_MAX};
       },
       "entry 1 has 16 bytes at offset"},
      {"no segment", [](FileSpec& file) { file.segments.clear(); }, "segment 0 does not exist"},
      {"input index", [](FileSpec& file) { method(file).inputs = {3}; },
       "inputs refer to value 3; the method has 3"},
      {"negative input", [](FileSpec& file) { method(file).inputs = {-1}; }, "inputs refer"},
      {"constant input", [](FileSpec& file) { method(file).inputs = {1}; },
       "input 0 is a constant"},
      {"output index", [](FileSpec& file) { method(file).outputs = {3}; }, "outputs refer"},
      {"arena",
       [](FileSpec& file) {
         method(file).arenas = {0, -1};
       },
       "buffer 1 has -1"},
      {"arena size",
       [](FileSpec& file) {
         method(file).arenas = {0, int64_t{1} << 41};
       },
       "bytes together"},
      {"arena sum",
       [](FileSpec& file) {
         method(file).arenas = {0, 128, INT64_MAX, INT64_MAX, INT64_MAX};
       },
       "bytes together"},
      {"unplanned", output({.sizes = {1 << 30, 1 << 12}, .type = ScalarType::BYTE}),
       sizeof(size_t) == 8 ? "without a plan need more than" : "too many elements"},
      {"int list", value(int_list({0, 99})), "list items refer to value 99"},
      {"odd int list", value(odd_int_list({0, 99})), "list items refer to value 99"},
      {"negative item", value(int_list({-1})), "list items refer to value -1"},
      {"tensor list", value(tensor_list({99})), "list items refer to value 99"},
      {"None in a tensor list", value(tensor_list({-1})), "list items refer to value -1"},
      {"optional list", value(optional_tensor_list({-2})), "list items refer to value -2"},
      {"list of itself", value(tensor_list({3})), "is no tensor"},
      {"no content", value([](Fbb& fbb) { return fb::CreateEValue(fbb); }), "it has no content"},
      {"unknown kind", value([](Fbb& fbb) {
         return fb::CreateEValue(fbb, static_cast<fb::KernelTypes>(77),
                                 fb::CreateNull(fbb).Union());
       }),
       "kind 77"},
      {"operator index", instruction(kernel(1, {0})), "operator 1 does not exist"},
      {"negative operator", instruction(kernel(-1, {0})), "operator -1 does not exist"},
      {"argument", instruction(kernel(0, {0, 1, 2, 3})), "arguments refer to value 3"},
      {"delegate index", instruction(delegate(0, {0})), "delegate 0 does not exist"},
      {"move", instruction(move(0, 3)), "value 3 does not exist"},
      {"jump", instruction(jump_false(0, 3)), "leaves the chain of 2"},
      {"negative jump", instruction(jump_false(0, -1)), "leaves the chain"},
      {"condition", instruction(jump_false(-1, 0)), "value -1 does not exist"},
      {"free", instruction(free_value(3)), "value 3 does not exist"},
      {"empty instruction", instruction([](Fbb& fbb) { return fb::CreateInstruction(fbb); }),
       "instruction 1: it has no content"},
      {"payload",
       [](FileSpec& file) {
         method(file).delegates = {{"TestBackend", fb::DataLocation::SEGMENT, 5}};
       },
       "segment 5 does not exist"},
      {"inline payload",
       [](FileSpec& file) {
         method(file).delegates = {{"TestBackend", fb::DataLocation::INLINE, 0}};
       },
       "inline payload 0 does not exist"},
      {"payload location",
       [](FileSpec& file) {
         method(file).delegates = {{"TestBackend", static_cast<fb::DataLocation>(9), 0}};
       },
       "payload location 9"},
  };
  return all;
}

TEST(Plan, RefusesWhatTheVerifierLetsThrough) {
  ASSERT_TRUE(load(add_file()).ok()) << load(add_file()).status().message();
  for (const PlanCase& c : cases()) {
    FileSpec spec = add_file();
    c.change(spec);
    const auto program = load(spec);
    ASSERT_FALSE(program.ok()) << c.name;
    EXPECT_TRUE(program.status().message().starts_with("[")) << c.name;
    EXPECT_NE(program.status().message().find(c.message), std::string::npos)
        << c.name << ": " << program.status().message();
  }
}

TEST(Plan, RefusesTablesWithoutRequiredFields) {
  // An ExecutionPlan, an Operator and a BackendDelegate with nothing in them.
  FileSpec spec = add_file();
  Fbb fbb;
  const std::vector plans = {fb::CreateExecutionPlan(fbb)};
  fb::FinishProgramBuffer(fbb, fb::CreateProgramDirect(fbb, 0, &plans));
  const auto program =
      Program::load_bytes(std::as_bytes(std::span(fbb.GetBufferPointer(), fbb.GetSize())), {});
  EXPECT_NE(program.status().message().find("no name"), std::string::npos);

  Fbb bare;
  const std::vector operators = {fb::CreateOperator(bare)};
  const std::vector bare_plans = {fb::CreateExecutionPlanDirect(
      bare, "forward", 0, nullptr, nullptr, nullptr, nullptr, &operators)};
  fb::FinishProgramBuffer(bare, fb::CreateProgramDirect(bare, 0, &bare_plans));
  const auto second =
      Program::load_bytes(std::as_bytes(std::span(bare.GetBufferPointer(), bare.GetSize())), {});
  EXPECT_NE(second.status().message().find("operator 0 has no name"), std::string::npos)
      << second.status().message();
}

// Tables that share one long vector would otherwise multiply a small file.
TEST(Plan, BoundsSharedLists) {
  Fbb fbb;
  const auto items = fbb.CreateVector(std::vector<int64_t>(1 << 16, 0));
  const auto list = fb::CreateIntList(fbb, items);
  const auto shared = fb::CreateEValue(fbb, fb::KernelTypes::IntList, list.Union());
  const std::vector values(1 << 10, shared);
  const std::vector plans = {fb::CreateExecutionPlanDirect(fbb, "forward", 0, &values)};
  fb::FinishProgramBuffer(fbb, fb::CreateProgramDirect(fbb, 0, &plans));
  const auto program =
      Program::load_bytes(std::as_bytes(std::span(fbb.GetBufferPointer(), fbb.GetSize())), {});
  EXPECT_EQ(program.status().code(), Code::kUnsupported);
  EXPECT_NE(program.status().message().find("items"), std::string::npos);
}

TEST(Plan, ListsAllMissingOperators) {
  FileSpec spec = add_file();
  method(spec).operators = {{"test::add", "out"}, {"other::a", "out"}, {"other::b", ""}};
  method(spec).instructions = {kernel(2, {0}), kernel(0, {0, 1, 2, 2}), kernel(1, {0}),
                               kernel(2, {0})};
  const auto program = load(spec);
  ASSERT_TRUE(program.ok());
  const Status status = program.value()->load_method("forward").status();
  EXPECT_EQ(status.code(), Code::kNotFound);
  EXPECT_NE(status.message().find("[forward]"), std::string::npos);
  EXPECT_NE(status.message().find("other::a.out() (instruction 2), other::b() (instruction 0)"),
            std::string::npos)
      << status.message();
  EXPECT_EQ(status.message().find("test::add"), std::string::npos);
}

TEST(Plan, RefusesCallsWithTooFewArguments) {
  FileSpec spec = add_file();
  method(spec).instructions = {kernel(0, {0, 1})};
  const Status status = load(spec).value()->load_method("forward").status();
  EXPECT_NE(status.message().find("test::add.out has 3 arguments; got 2"), std::string::npos);
}

TEST(Plan, NamesUnknownBackends) {
  FileSpec spec = add_file();
  method(spec).delegates = {{"NoSuchBackend"}};
  const Status status = load(spec).value()->load_method("forward").status();
  EXPECT_EQ(status.code(), Code::kNotFound);
  EXPECT_NE(status.message().find("'NoSuchBackend'"), std::string::npos);
  EXPECT_NE(status.message().find("TestBackend"), std::string::npos) << status.message();
}

// A plan that no machine holds is a failure to load the method, not a crash.
TEST(Plan, SurvivesPlansLargerThanTheMachine) {
  FileSpec spec = add_file();
  method(spec).arenas = {0, int64_t{1} << (sizeof(size_t) == 8 ? 40 : 30)};
  const auto program = load(spec);
  ASSERT_TRUE(program.ok());
  const auto loaded = program.value()->load_method("forward");
  EXPECT_EQ(loaded.status().code(), loaded.ok() ? Code::kOk : Code::kOutOfMemory);
}

TEST(Plan, KeepsToTheCallersBound) {
  FileSpec spec = add_file();
  method(spec).arenas = {0, 4096, 1024};
  const auto file = make_file(spec);
  for (const auto& [most, fits] : {std::pair<size_t, bool>{0, true}, {5120, true}, {5119, false}}) {
    const auto program = Program::load_bytes(file, {.max_memory = most}).value();
    const Status status = program->load_method("forward").status();
    EXPECT_EQ(status.ok(), fits) << most << ": " << status.message();
    if (fits) continue;
    EXPECT_EQ(status.code(), Code::kOutOfMemory);
    EXPECT_NE(status.message().find("max_memory is 5119 bytes; the program plans 5120"),
              std::string::npos)
        << status.message();
  }
}

// What only the run tells: a tensor that grows.
TEST(Plan, KeepsToTheCallersBoundWhileItRuns) {
  using fb::TensorShapeDynamism;
  FileSpec spec = add_file();
  method(spec).values = {integer(3),
                         tensor({.sizes = {9}, .dynamism = TensorShapeDynamism::DYNAMIC_UNBOUND})};
  method(spec).inputs = {0};
  method(spec).outputs = {1};
  method(spec).operators = {{"test::ramp", "out"}};
  method(spec).instructions = {kernel(0, {0, 1, 1})};
  const auto program = Program::load_bytes(make_file(spec), {.max_memory = 2048}).value();
  const auto loaded = program->load_method("forward").value();
  for (const int64_t count : {512, 513, 100}) {
    ASSERT_TRUE(loaded->set_input(0, Value(Value::Variant(count))).ok());
    const Status status = loaded->execute();
    EXPECT_EQ(status.code(), count * 4 > 2048 ? Code::kOutOfMemory : Code::kOk) << status.message();
  }
}

}  // namespace
}  // namespace edgewise::test
