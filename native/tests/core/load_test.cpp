// What stands around the flatbuffer: identifier, header, segments, named data, versions.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <functional>

#include "core/pte_header.h"
#include "test_program.h"

namespace edgewise::test {
namespace {

using ::testing::Test;

Result<std::shared_ptr<Program>> load_raw(const Bytes& bytes) {
  return Program::load_bytes(bytes, {});
}

template <typename T>
void put(Bytes& file, size_t offset, T number) {
  std::memcpy(file.data() + offset, &number, sizeof(number));
}

struct FileCase {
  const char* name;
  std::function<void(Bytes&)> damage;
  const char* message;
};

TEST(Load, RefusesByField) {
  const FileCase cases[] = {
      {"empty", [](Bytes& f) { f.clear(); }, "are empty"},
      {"short", [](Bytes& f) { f.resize(11); }, "at least 12 bytes; got 11"},
      {"identifier", [](Bytes& f) { f[4] = std::byte{'X'}; }, "identifier"},
      {"identifier digits", [](Bytes& f) { f[6] = std::byte{'x'}; }, "identifier"},
      {"header length", [](Bytes& f) { put<uint32_t>(f, 12, 23); }, "at least 24 bytes; got 23"},
      {"header too long", [](Bytes& f) { put<uint32_t>(f, 12, 1 << 30); }, "the length"},
      {"program size", [](Bytes& f) { put<uint64_t>(f, 16, 1 << 30); }, "the program size"},
      {"program size 0", [](Bytes& f) { put<uint64_t>(f, 16, 0); }, "does not hold the header"},
      {"segment base", [](Bytes& f) { put<uint64_t>(f, 24, UINT64_MAX); }, "the segment base"},
      {"segments inside", [](Bytes& f) { put<uint64_t>(f, 24, 40); }, "inside the program"},
      {"segment size", [](Bytes& f) { put<uint64_t>(f, 32, UINT64_MAX); }, "segment data size"},
      {"root", [](Bytes& f) { put<uint32_t>(f, 0, 1 << 20); }, "flatbuffer is damaged"},
      {"last byte", [](Bytes& f) { f.pop_back(); }, "may be truncated"},
  };
  for (const FileCase& c : cases) {
    Bytes file = make_file(add_file());
    c.damage(file);
    const auto program = load_raw(file);
    ASSERT_FALSE(program.ok()) << c.name;
    EXPECT_EQ(program.status().code(), Code::kInvalidProgram) << c.name;
    EXPECT_NE(program.status().message().find(c.message), std::string::npos)
        << c.name << ": " << program.status().message();
  }
}

// Only the header is read: the bytes behind it need not be there.
TEST(Load, RefusesProgramsOf2GiB) {
  const uint64_t most = (uint64_t{1} << 31) - 2;
  Bytes file = make_file(add_file());
  for (const uint64_t size : {most, most + 1}) {
    put<uint64_t>(file, 16, size);
    put<uint64_t>(file, 24, 0);
    put<uint64_t>(file, 32, 0);
    const auto header = read_pte_header({file.data(), static_cast<size_t>(size)});
    const std::string message = header.status().message();
    EXPECT_EQ(message.find("at most 2^31") == std::string::npos, size == most) << message;
  }
}

TEST(Load, TakesBothHeaderLengths) {
  FileSpec spec = add_file();
  spec.header_bytes = 24;
  EXPECT_TRUE(load(spec).ok()) << load(spec).status().message();
}

// Where the items of a list begin in the file, past a multiple of 8.
template <typename T>
size_t alignment_of(const flatbuffers::Vector<T>* items, const Bytes& file) {
  return static_cast<size_t>(items->Data() - reinterpret_cast<const uint8_t*>(file.data())) % 8;
}

TEST(Load, TakesItemsOf8BytesAtMultiplesOf4) {
  FileSpec spec = add_file();
  spec.odd_lists = true;
  MethodSpec& method = spec.methods[0];
  method.values.insert(method.values.end(),
                       {integer(7), integer(-2), odd_int_list({3, 4}), odd_double_list({0.5, 1e3}),
                        tensor({.sizes = {4}, .memory_id = 1, .offset = 32})});
  method.outputs = {2, 7};
  method.operators.push_back({"test::lists", "out"});
  method.instructions.push_back(kernel(1, {5, 6, 7}));

  const Bytes file = make_file(spec);
  const fb::Program* program = fb::GetProgram(file.data());
  const fb::ExecutionPlan* plan = program->execution_plan()->Get(0);
  const auto* values = plan->values();
  ASSERT_EQ(alignment_of(plan->non_const_buffer_sizes(), file), 4);
  ASSERT_EQ(alignment_of(program->constant_segment()->offsets(), file), 4);
  ASSERT_EQ(alignment_of(values->Get(5)->val_as_IntList()->items(), file), 4);
  ASSERT_EQ(alignment_of(values->Get(6)->val_as_DoubleList()->items(), file), 4);

  for (const Verification verification :
       {Verification::kInternalConsistency, Verification::kMinimal}) {
    const auto loaded = load(spec, verification);
    ASSERT_TRUE(loaded.ok()) << loaded.status().message();
    const auto running = loaded.value()->load_method("forward");
    ASSERT_TRUE(running.ok()) << running.status().message();
    std::vector<float> x = {0, 1, 2, 3};
    ASSERT_TRUE(running.value()->set_input(0, over(x, ScalarType::kFloat, {4})).ok());
    ASSERT_TRUE(running.value()->execute().ok());
    EXPECT_EQ(floats(running.value()->output(0)), (std::vector<float>{10, 21, 32, 43}));
    EXPECT_EQ(floats(running.value()->output(1)), (std::vector<float>{7, -2, 0.5, 1e3}));
  }
}

TEST(Load, TakesFilesWithoutHeaderAndWithInlineConstants) {
  FileSpec spec = add_file();
  spec.extended_header = false;
  spec.segments.clear();
  spec.constant_offsets.clear();
  spec.constant_buffer = {{}, bytes_of<float>({1, 2, 3, 4})};
  const auto program = load(spec);
  ASSERT_TRUE(program.ok()) << program.status().message();
  const auto method = program.value()->load_method("forward");
  std::vector<float> x = {0, 0, 0, 0};
  ASSERT_TRUE(method.value()->set_input(0, over(x, ScalarType::kFloat, {4})).ok());
  ASSERT_TRUE(method.value()->execute().ok());
  EXPECT_EQ(floats(method.value()->output(0)), (std::vector<float>{1, 2, 3, 4}));

  spec.constant_buffer = {{}, bytes_of<float>({1, 2, 3})};
  EXPECT_NE(load(spec).status().message().find("has 12 bytes, and 16 are needed"),
            std::string::npos);
  spec.constant_buffer = {{}};
  EXPECT_NE(load(spec).status().message().find("constant 1 does not exist"), std::string::npos);
}

TEST(Load, RefusesOtherVersions) {
  FileSpec spec = add_file();
  spec.version = 1;
  EXPECT_EQ(load(spec).status().code(), Code::kUnsupported);
}

TEST(Load, ChecksNamedData) {
  FileSpec spec = add_file();
  spec.named_data = {{"key", 7}};
  EXPECT_NE(load(spec).status().message().find("named data 0 is in segment 7"), std::string::npos);
}

TEST(Load, RefusesMethodsOfTheSameNameAndNone) {
  FileSpec spec = add_file();
  spec.methods.push_back(spec.methods[0]);
  EXPECT_NE(load(spec).status().message().find("two methods"), std::string::npos);
  spec.methods.clear();
  EXPECT_NE(load(spec).status().message().find("no method"), std::string::npos);
}

TEST(Load, NamesMethods) {
  FileSpec spec = add_file();
  spec.methods.push_back(spec.methods[0]);
  spec.methods[1].name = "encode";
  const auto program = load(spec);
  ASSERT_TRUE(program.ok());
  EXPECT_EQ(program.value()->method_names(), (std::vector<std::string>{"forward", "encode"}));
  const Status status = program.value()->load_method("decode").status();
  EXPECT_EQ(status.code(), Code::kNotFound);
  EXPECT_EQ(status.message(),
            "[load_method] the program has the methods 'forward', 'encode'; got 'decode'");
}

TEST(Load, ShowsControlCharactersOfNames) {
  FileSpec spec = add_file();
  spec.methods[0].name = "a\x1b[31m\x07\x7f\xc2\x9b\xc3\xa4";  // the last one is a letter
  const auto program = load(spec);
  ASSERT_TRUE(program.ok());
  const Status status = program.value()->load_method("b\r").status();
  EXPECT_EQ(status.message(),
            "[load_method] the program has the methods "
            "'a\\x1b[31m\\x07\\x7f\\x9b\xc3\xa4'; got 'b\\x0d'");
}

TEST(Load, DescribesMethods) {
  const auto program = load(add_file());
  const MethodInfo info = program.value()->method_info("forward").value();
  EXPECT_EQ(info.name, "forward");
  EXPECT_EQ(info.inputs.size(), 1u);
  EXPECT_EQ(info.inputs[0].kind, "Tensor");
  EXPECT_EQ(info.inputs[0].nbytes, 16u);
  EXPECT_EQ(info.inputs[0].sizes, (std::vector<int64_t>{4}));
  EXPECT_EQ(info.operators, (std::vector<std::string>{"test::add.out"}));
  EXPECT_EQ(info.planned_memory, (std::vector<size_t>{128}));
  EXPECT_EQ(info.instruction_count, 1u);
  ASSERT_EQ(info.instructions.size(), 1u);
  EXPECT_EQ(info.instructions[0].kind, InstructionInfo::Kind::kKernel);
  EXPECT_EQ(info.instructions[0].target, 0u);
  EXPECT_EQ(info.input_spec, "in");
  EXPECT_EQ(info.output_spec, "out");
}

TEST(Load, DescribesShapesThatAreNotFixed) {
  for (const auto& [dynamism, expected, sizes] :
       {std::tuple{fb::TensorShapeDynamism::STATIC, Dynamism::kStatic, std::vector<int64_t>{4}},
        std::tuple{fb::TensorShapeDynamism::DYNAMIC_BOUND, Dynamism::kDynamicBound,
                   std::vector<int64_t>{4}},
        // The file's sizes are no bound: nothing is known before the first call.
        std::tuple{fb::TensorShapeDynamism::DYNAMIC_UNBOUND, Dynamism::kDynamicUnbound,
                   std::vector<int64_t>{0}}}) {
    FileSpec spec = add_file();
    spec.methods[0].values[0] = tensor({.sizes = {4}, .dynamism = dynamism});
    const auto program = load(spec);
    ASSERT_TRUE(program.ok()) << program.status().message();
    const ValueInfo input = program.value()->method_info("forward").value().inputs[0];
    EXPECT_EQ(input.dynamism, expected);
    EXPECT_EQ(input.sizes, sizes);
    EXPECT_EQ(input.type, ScalarType::kFloat);
    EXPECT_EQ(input.dim_order, (std::vector<uint8_t>{0}));
  }
}

TEST(Load, RefusesDataFilesThatAreMissingOrNone) {
  const Bytes file = make_file(add_file());
  LoadOptions missing, folder, bytes;
  missing.data_files = {"/no/such/file.ptd"};
  folder.data_files = {"/"};
  bytes.data_buffers = {file};
  const Status absent = Program::load_bytes(file, missing).status();
  EXPECT_EQ(absent.code(), Code::kNotFound);
  EXPECT_NE(absent.message().find("/no/such/file.ptd"), std::string::npos) << absent.message();
  EXPECT_EQ(Program::load_bytes(file, folder).status().code(), Code::kIo);
  const Status other = Program::load_bytes(file, bytes).status();
  EXPECT_EQ(other.code(), Code::kInvalidProgram);
  EXPECT_NE(other.message().find("bytes 0"), std::string::npos) << other.message();
}

TEST(Load, MapsFiles) {
  const std::string path = ::testing::TempDir() + "/edgewise_load_" + std::to_string(getpid());
  // With sizes around a page's: the padding behind the file must be readable.
  for (const size_t size : {0, 4096, 4090, 8192 - 64}) {
    FileSpec spec = add_file();
    Bytes file = make_file(spec);
    while (file.size() < size) file.push_back(std::byte{0});
    std::FILE* out = std::fopen(path.c_str(), "wb");
    ASSERT_NE(out, nullptr);
    ASSERT_EQ(std::fwrite(file.data(), 1, file.size(), out), file.size());
    std::fclose(out);
    const auto program = Program::load_file(path, {});
    ASSERT_TRUE(program.ok()) << program.status().message();
    EXPECT_EQ(program.value()->size_bytes(), file.size());
    EXPECT_TRUE(program.value()->load_method("forward").ok());
  }
  std::remove(path.c_str());
  EXPECT_EQ(Program::load_file(path, {}).status().code(), Code::kNotFound);
  EXPECT_EQ(Program::load_file("/", {}).status().code(), Code::kIo);
}

TEST(Load, RefusesNegativeThreads) {
  const Bytes file = make_file(add_file());
  EXPECT_EQ(Program::load_bytes(file, {.threads = -1}).status().code(), Code::kInvalidArgument);
}

TEST(Load, MinimalVerificationStillChecksIndices) {
  FileSpec spec = add_file();
  spec.methods[0].outputs = {99};
  EXPECT_FALSE(load(spec, Verification::kMinimal).ok());
  EXPECT_TRUE(load(add_file(), Verification::kMinimal).ok());
}

}  // namespace
}  // namespace edgewise::test
