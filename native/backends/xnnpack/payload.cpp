#include "backends/xnnpack/payload.h"

#include <cinttypes>
#include <cstring>
#include <vector>

#include "core/checked.h"

namespace edgewise::xnnpack {
namespace {

constexpr size_t kHeaderLength = 30;
constexpr char kHeaderMagic[] = "XH00";
constexpr size_t kMagicOffset = 4;
constexpr size_t kFlatbufferAlignment = 8;

template <typename T>
T load(std::span<const std::byte> bytes, size_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof(T));
  return value;
}

bool has_magic(std::span<const std::byte> bytes, const char* magic) {
  return bytes.size() >= kMagicOffset + 4 &&
         std::memcmp(bytes.data() + kMagicOffset, magic, 4) == 0;
}

Status bad_range(const char* what, uint64_t offset, uint64_t size, size_t total) {
  return error(Code::kInvalidProgram,
               "[xnnpack payload] %s must lie inside the payload; got offset %" PRIu64
               " and length %" PRIu64 " in %zu bytes",
               what, offset, size, total);
}

}  // namespace

Result<Payload> open_payload(std::span<const std::byte> bytes) {
  Payload payload;
  std::span<const std::byte> flatbuffer = bytes;
  if (has_magic(bytes, kHeaderMagic)) {
    if (bytes.size() < kHeaderLength || load<uint16_t>(bytes, 8) < kHeaderLength) {
      return error(Code::kInvalidProgram,
                   "[xnnpack payload] the header must have %zu bytes; got a payload of %zu bytes",
                   kHeaderLength, bytes.size());
    }
    const auto flatbuffer_offset = load<uint32_t>(bytes, 10);
    const auto flatbuffer_size = load<uint32_t>(bytes, 14);
    const auto constants_offset = load<uint32_t>(bytes, 18);
    const auto constants_size = load<uint64_t>(bytes, 22);
    if (!in_range(flatbuffer_offset, flatbuffer_size, bytes.size())) {
      return bad_range("the flatbuffer", flatbuffer_offset, flatbuffer_size, bytes.size());
    }
    // A payload without constants may end before the padding that its header counts.
    if (constants_size != 0 && !in_range(constants_offset, constants_size, bytes.size())) {
      return bad_range("the constants", constants_offset, constants_size, bytes.size());
    }
    payload.has_header = true;
    flatbuffer = bytes.subspan(flatbuffer_offset, flatbuffer_size);
    if (constants_size != 0) {
      payload.constants = bytes.subspan(constants_offset, static_cast<size_t>(constants_size));
    }
  }
  if (!has_magic(flatbuffer, "XN01") && !has_magic(flatbuffer, "XN00")) {
    return error(Code::kInvalidProgram,
                 "[xnnpack payload] the flatbuffer's identifier must be XN01 or XN00; the payload "
                 "is damaged or not for this backend");
  }
  if (reinterpret_cast<uintptr_t>(flatbuffer.data()) % kFlatbufferAlignment != 0) {
    auto words = std::make_shared<std::vector<uint64_t>>(flatbuffer.size() / sizeof(uint64_t) + 1);
    std::memcpy(words->data(), flatbuffer.data(), flatbuffer.size());
    flatbuffer = std::as_bytes(std::span(*words)).first(flatbuffer.size());
    payload.owner = std::move(words);
  }
  const auto* data = reinterpret_cast<const uint8_t*>(flatbuffer.data());
  flatbuffers::Verifier verifier(data, flatbuffer.size());
  if (!verifier.VerifyBuffer<fb::XNNGraph>(nullptr)) {
    return error(Code::kInvalidProgram,
                 "[xnnpack payload] the flatbuffer breaks its own rules; the file is damaged or "
                 "cut off");
  }
  payload.graph = flatbuffers::GetRoot<fb::XNNGraph>(data);
  return payload;
}

}  // namespace edgewise::xnnpack
