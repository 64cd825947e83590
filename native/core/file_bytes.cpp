#include "file_bytes.h"

#include <cstring>
#include <utility>

namespace edgewise {

Result<FileBytes> FileBytes::map(const std::string& path) {
  Result<std::shared_ptr<const platform::MappedFile>> mapped = platform::map_file(path);
  if (!mapped) return mapped.status();
  FileBytes result;
  result.mapping_ = std::move(*mapped);
  result.bytes_ = result.mapping_->bytes();
  return result;
}

void FileBytes::release(std::span<const std::byte> part) const {
  if (mapping_ != nullptr) mapping_->release(part);
}

Status FileBytes::check_whole() const {
  if (mapping_ == nullptr || mapping_->is_whole()) return {};
  return error(
      Code::kIo,
      "'%s' must stay as it is while it is loaded; got pages that cannot be read any more, "
      "as of a file that was cut short; try loading it again, with full verification if "
      "others write to it",
      mapping_->name().c_str());
}

Result<FileBytes> FileBytes::read(const std::string& path) {
  Result<FileBytes> mapped = map(path);
  if (!mapped) return mapped;
  Result<FileBytes> result = copy(mapped->bytes());
  EDGEWISE_RETURN_IF_ERROR(mapped->check_whole().within("load"));
  return result;
}

Result<FileBytes> FileBytes::copy(std::span<const std::byte> bytes) {
  if (bytes.empty()) return error(Code::kInvalidProgram, "[load] the bytes are empty");
  Result<MemoryBlock> block = MemoryBlock::allocate(bytes.size());
  if (!block) return block.status();
  FileBytes result;
  result.copy_ = std::move(*block);
  std::memcpy(result.copy_.data(), bytes.data(), bytes.size());
  result.bytes_ = {result.copy_.data(), bytes.size()};
  return result;
}

Result<FileBytes> FileBytes::in_place(std::span<const std::byte> bytes) {
  if (bytes.empty()) return error(Code::kInvalidProgram, "[load] the bytes are empty");
  const size_t beyond = reinterpret_cast<uintptr_t>(bytes.data()) % kBufferAlignment;
  if (beyond != 0) {
    return error(Code::kInvalidArgument,
                 "[load] bytes that are read in place must be aligned to %zu; got an address %zu "
                 "beyond that; try alignas, or load_bytes, which copies them",
                 kBufferAlignment, beyond);
  }
  FileBytes result;
  result.bytes_ = bytes;
  return result;
}

}  // namespace edgewise
