// Entries of `.ptd` files: what they lead to, and what is wrong with them.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <optional>

#include "flat_tensor_generated.h"
#include "test_program.h"

namespace edgewise::test {
namespace {

struct EntrySpec {
  std::optional<std::string> key;
  uint32_t segment = 0;
};

struct SegmentSpec {
  uint64_t offset;
  uint64_t size;
};

struct DataSpec {
  std::vector<EntrySpec> entries = {{.key = "key"}};
  std::vector<SegmentSpec> segments = {{0, 16}};
  bool segment_table = true;
  uint32_t version = 0;
};

constexpr uint32_t kHeader = 40;
constexpr uint64_t kDataBytes = 64;

Bytes make_data_file(const DataSpec& spec) {
  flatbuffers::FlatBufferBuilder fbb;
  std::vector<flatbuffers::Offset<fb::FlatNamedData>> entries;
  for (const EntrySpec& entry : spec.entries) {
    entries.push_back(fb::CreateFlatNamedDataDirect(fbb, entry.key ? entry.key->c_str() : nullptr,
                                                    entry.segment));
  }
  std::vector<flatbuffers::Offset<fb::FlatSegment>> segments;
  for (const SegmentSpec& segment : spec.segments) {
    segments.push_back(fb::CreateFlatSegment(fbb, segment.offset, segment.size));
  }
  fbb.Finish(fb::CreateFlatTensorDirect(fbb, spec.version, spec.segment_table ? &segments : nullptr,
                                        &entries),
             "FT01");
  const uint32_t root = flatbuffers::ReadScalar<uint32_t>(fbb.GetBufferPointer()) + kHeader;
  const uint64_t size = fbb.GetSize();  // behind the header, with the bytes that stand before it
  const uint64_t base = (size + kHeader + 63) / 64 * 64;
  Bytes file(base + kDataBytes);
  const auto put = [&file](size_t at, const void* bytes, size_t count) {
    std::memcpy(file.data() + at, bytes, count);
  };
  const uint64_t begin = kHeader + 8;
  const uint64_t rest = size - 8;
  put(0, &root, 4);
  put(4, "FT01FH01", 8);
  put(12, &kHeader, 4);
  put(16, &begin, 8);
  put(24, &rest, 8);
  put(32, &base, 8);
  put(40, &kDataBytes, 8);
  put(begin, fbb.GetBufferPointer() + 8, rest);
  return file;
}

Status loaded(const DataSpec& spec, Verification verification) {
  const Bytes data = make_data_file(spec);
  LoadOptions options;
  options.data_buffers = {data};
  options.verification = verification;
  return Program::load_bytes(make_file(add_file()), options).status();
}

struct DataCase {
  const char* name;
  std::function<void(DataSpec&)> change;
  const char* message;
};

// Flatbuffers' verifier takes all of these.
TEST(DataFile, RefusesEntries) {
  const DataCase cases[] = {
      {"no key", [](DataSpec& d) { d.entries[0].key.reset(); }, "entry 0 has no key"},
      {"two of one key", [](DataSpec& d) { d.entries.push_back(d.entries[0]); },
       "two entries have the key 'key'"},
      {"segment", [](DataSpec& d) { d.entries[0].segment = 1; },
       "'key' is in segment 1; the file has 1"},
      {"no segments", [](DataSpec& d) { d.segment_table = false; },
       "'key' is in segment 0; the file has 0"},
      {"offset",
       [](DataSpec& d) {
         d.segments[0] = {kDataBytes + 1, 0};
       },
       "at offset 65"},
      {"size",
       [](DataSpec& d) {
         d.segments[0] = {0, kDataBytes + 1};
       },
       "has 65 bytes"},
      {"end",
       [](DataSpec& d) {
         d.segments[0] = {60, 5};
       },
       "may be truncated"},
      {"overflow",
       [](DataSpec& d) {
         d.segments[0] = {UINT64_MAX, 2};
       },
       "may be truncated"},
      {"version", [](DataSpec& d) { d.version = 1; }, "version 0 is read; got 1"},
  };
  for (const Verification how : {Verification::kInternalConsistency, Verification::kMinimal}) {
    for (const DataCase& c : cases) {
      DataSpec spec;
      c.change(spec);
      const Status status = loaded(spec, how);
      EXPECT_FALSE(status.ok()) << c.name;
      EXPECT_TRUE(status.message().starts_with("[load] data file ")) << status.message();
      EXPECT_NE(status.message().find(c.message), std::string::npos)
          << c.name << ": " << status.message();
    }
  }
}

TEST(DataFile, TakesWhatItsSegmentsHold) {
  DataSpec several;
  several.entries = {{.key = "a"}, {.key = "b", .segment = 1}, {.key = "c", .segment = 1}};
  several.segments = {{0, kDataBytes}, {kDataBytes, 0}};
  DataSpec none{.entries = {}, .segments = {}, .segment_table = false};
  for (const DataSpec& spec : {DataSpec(), several, none}) {
    for (const Verification how : {Verification::kInternalConsistency, Verification::kMinimal}) {
      const Status status = loaded(spec, how);
      EXPECT_TRUE(status.ok()) << status.message();
    }
  }
}

}  // namespace
}  // namespace edgewise::test
