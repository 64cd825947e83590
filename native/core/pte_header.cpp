#include "pte_header.h"

#include <bit>
#include <cstring>

#include "checked.h"

namespace edgewise {

namespace {

constexpr size_t kIdentifierOffset = 4;
constexpr size_t kHeaderOffset = 8;
constexpr uint32_t kMinHeaderBytes = 24;
constexpr uint32_t kFullHeaderBytes = 32;
// Offsets inside a flatbuffer are signed 32-bit numbers.
constexpr uint64_t kMaxFlatbufferBytes = (uint64_t{1} << 31) - 1;

static_assert(std::endian::native == std::endian::little, "numbers are read as they lie");

template <typename T>
T read(std::span<const std::byte> file, size_t offset) {
  T number;
  std::memcpy(&number, file.data() + offset, sizeof(T));
  return number;
}

bool is_digit(std::byte b) { return b >= std::byte{'0'} && b <= std::byte{'9'}; }

Status check_identifier(std::span<const std::byte> file) {
  if (file.size() < kHeaderOffset + sizeof(uint32_t)) {
    return error(Code::kInvalidProgram, "[load] a .pte file has at least 12 bytes; got %zu",
                 file.size());
  }
  const std::byte* id = file.data() + kIdentifierOffset;
  if (id[0] == std::byte{'E'} && id[1] == std::byte{'T'} && is_digit(id[2]) && is_digit(id[3])) {
    return Status::ok_status();
  }
  return error(Code::kInvalidProgram,
               "[load] a .pte file has the identifier \"ET12\" at byte 4; got %02x %02x %02x %02x; "
               "try a file written by edgewise or ExecuTorch",
               std::to_integer<unsigned>(id[0]), std::to_integer<unsigned>(id[1]),
               std::to_integer<unsigned>(id[2]), std::to_integer<unsigned>(id[3]));
}

Status truncated(const char* field, uint64_t value, size_t size) {
  return error(Code::kInvalidProgram,
               "[load] %s of the header is %llu and the file has %zu bytes; the file may be "
               "truncated",
               field, static_cast<unsigned long long>(value), size);
}

}  // namespace

Result<PteHeader> read_pte_header(std::span<const std::byte> file) {
  EDGEWISE_RETURN_IF_ERROR(check_identifier(file));
  PteHeader header;
  if (std::memcmp(file.data() + kHeaderOffset, "eh00", 4) != 0) {
    header.flatbuffer = file;
  } else {
    if (file.size() < kHeaderOffset + kMinHeaderBytes) {
      return truncated("the length", kMinHeaderBytes, file.size());
    }
    const uint32_t length = read<uint32_t>(file, kHeaderOffset + 4);
    if (length < kMinHeaderBytes) {
      return error(Code::kInvalidProgram,
                   "[load] the extended header has at least %u bytes; got %u", kMinHeaderBytes,
                   length);
    }
    if (!in_range(kHeaderOffset, length, file.size())) {
      return truncated("the length", length, file.size());
    }
    const uint64_t program_size = read<uint64_t>(file, kHeaderOffset + 8);
    const uint64_t segment_base = read<uint64_t>(file, kHeaderOffset + 16);
    if (program_size < kHeaderOffset + length) {
      return error(Code::kInvalidProgram, "[load] the program size %llu does not hold the header",
                   static_cast<unsigned long long>(program_size));
    }
    if (program_size > file.size()) return truncated("the program size", program_size, file.size());
    if (segment_base > file.size()) return truncated("the segment base", segment_base, file.size());
    header.flatbuffer = file.first(program_size);
    if (segment_base != 0) {
      if (segment_base < program_size) {
        return error(Code::kInvalidProgram,
                     "[load] segments begin at %llu, inside the program's %llu bytes",
                     static_cast<unsigned long long>(segment_base),
                     static_cast<unsigned long long>(program_size));
      }
      header.segments = file.subspan(segment_base);
    }
    if (length >= kFullHeaderBytes) {
      const uint64_t data_size = read<uint64_t>(file, kHeaderOffset + 24);
      if (data_size > header.segments.size()) {
        return truncated("the segment data size", data_size, file.size());
      }
      // 0 also stands for "not known".
      if (data_size != 0) header.segments = header.segments.first(data_size);
    }
  }
  if (header.flatbuffer.size() >= kMaxFlatbufferBytes) {
    return error(Code::kInvalidProgram,
                 "[load] the program without segments has %zu bytes; at most "
                 "2^31 are possible",
                 header.flatbuffer.size());
  }
  return header;
}

}  // namespace edgewise
