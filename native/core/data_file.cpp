#include "data_file.h"

#include <cstring>
#include <utility>

#include "checked.h"

namespace edgewise {

namespace {

constexpr size_t kHeaderOffset = 8;
constexpr uint32_t kHeaderBytes = 40;
constexpr flatbuffers::uoffset_t kMaxDepth = 8;
constexpr flatbuffers::uoffset_t kMaxTables = 1 << 24;
constexpr uint64_t kMaxFlatbufferBytes = (uint64_t{1} << 31) - 1;

template <typename T>
T load(std::span<const std::byte> file, size_t offset) {
  T number;
  std::memcpy(&number, file.data() + offset, sizeof(T));
  return number;
}

bool has(std::span<const std::byte> file, size_t offset, const char* magic) {
  return std::memcmp(file.data() + offset, magic, 4) == 0;
}

unsigned long long wide(uint64_t number) { return number; }

}  // namespace

Result<std::unique_ptr<DataFile>> DataFile::open(FileBytes bytes, std::string name,
                                                 Verification verification) {
  auto file = std::make_unique<DataFile>();
  file->bytes_ = std::move(bytes);
  file->name_ = std::move(name);
  const Status status = file->read_flatbuffer(verification);
  if (!status.ok()) {
    return error(status.code(), "[load] data file '%s': %s", file->name_.c_str(),
                 status.message().c_str());
  }
  return file;
}

Status DataFile::read_flatbuffer(Verification verification) {
  const std::span<const std::byte> file = bytes_.bytes();
  if (file.size() < kHeaderOffset + kHeaderBytes) {
    return error(Code::kInvalidProgram, "a .ptd file has at least 48 bytes; got %zu", file.size());
  }
  if (!has(file, 4, "FT01") || !has(file, kHeaderOffset, "FH01")) {
    return error(Code::kInvalidProgram,
                 "a .ptd file has \"FT01\" at byte 4 and \"FH01\" at byte 8; try a file written "
                 "by write_tensor_data_to_file");
  }
  const auto length = load<uint32_t>(file, kHeaderOffset + 4);
  const auto begin = load<uint64_t>(file, kHeaderOffset + 8);
  const auto size = load<uint64_t>(file, kHeaderOffset + 16);
  const auto base = load<uint64_t>(file, kHeaderOffset + 24);
  const auto data_size = load<uint64_t>(file, kHeaderOffset + 32);
  uint64_t end = 0;
  if (length < kHeaderBytes || begin < length || !checked_add(begin, size, &end) ||
      end > file.size() || end >= kMaxFlatbufferBytes || size < 4) {
    return error(Code::kInvalidProgram,
                 "the header has %u bytes in %llu, and the flatbuffer %llu more; the file has "
                 "%zu bytes and may be truncated",
                 length, wide(begin), wide(size), file.size());
  }
  std::span<const std::byte> segments;
  if (base != 0) {
    if (base < end || !in_range(base, data_size, file.size())) {
      return error(Code::kInvalidProgram,
                   "segments of %llu bytes begin at %llu; the file has %zu bytes and may be "
                   "truncated",
                   wide(data_size), wide(base), file.size());
    }
    segments = file.subspan(base, data_size);
  }
  const auto* buffer = reinterpret_cast<const uint8_t*>(file.data());
  if (verification != Verification::kMinimal) {
    flatbuffers::Verifier verifier(buffer, end, kMaxDepth, kMaxTables);
    if (!verifier.VerifyBuffer<fb::FlatTensor>(nullptr)) {
      return error(Code::kInvalidProgram, "the flatbuffer is damaged; try writing the file again");
    }
  } else if (!in_range(flatbuffers::ReadScalar<flatbuffers::uoffset_t>(buffer),
                       sizeof(flatbuffers::soffset_t), end)) {
    return error(Code::kInvalidProgram, "the root table is outside of the file");
  }
  const fb::FlatTensor& table = *flatbuffers::GetRoot<fb::FlatTensor>(buffer);
  if (table.version() != 0) {
    return error(Code::kUnsupported, "version 0 is read; got %u; try a newer edgewise",
                 table.version());
  }
  return read_entries(table, segments);
}

Status DataFile::read_entries(const fb::FlatTensor& table, std::span<const std::byte> segments) {
  const auto* names = table.named_data();
  if (names == nullptr) return {};
  const auto* segment_table = table.segments();
  for (uint32_t i = 0; i < names->size(); ++i) {
    const fb::FlatNamedData* entry = names->Get(i);
    if (entry->key() == nullptr) return error(Code::kInvalidProgram, "entry %u has no key", i);
    const char* key = entry->key()->c_str();
    if (segment_table == nullptr || entry->segment_index() >= segment_table->size()) {
      return error(Code::kInvalidProgram, "'%s' is in segment %u; the file has %u", key,
                   entry->segment_index(), segment_table == nullptr ? 0 : segment_table->size());
    }
    const fb::FlatSegment* segment = segment_table->Get(entry->segment_index());
    if (!in_range(segment->offset(), segment->size(), segments.size())) {
      return error(Code::kInvalidProgram,
                   "'%s' has %llu bytes at offset %llu, and the segments have %zu; the file may "
                   "be truncated",
                   key, wide(segment->size()), wide(segment->offset()), segments.size());
    }
    const Entry found{segments.subspan(segment->offset(), segment->size()), entry->tensor_layout()};
    if (!entries_.try_emplace(entry->key()->string_view(), found).second) {
      return error(Code::kInvalidProgram, "two entries have the key '%s'", key);
    }
  }
  return {};
}

const DataFile::Entry* DataFile::find(std::string_view key) const {
  const auto found = entries_.find(key);
  return found == entries_.end() ? nullptr : &found->second;
}

}  // namespace edgewise
