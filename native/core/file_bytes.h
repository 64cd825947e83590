// The bytes of a program: a file mapped read-only, or a copy of the caller's bytes.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "edgewise/status.h"
#include "memory.h"

namespace edgewise {

// Bytes aligned to kBufferAlignment and followed by kReadPadding readable bytes. A
// mapped file must not be truncated by anybody while it is in use.
class FileBytes {
 public:
  FileBytes() = default;
  ~FileBytes();
  FileBytes(FileBytes&& other) noexcept;
  FileBytes& operator=(FileBytes&& other) noexcept;

  static Result<FileBytes> map(const std::string& path);
  static Result<FileBytes> copy(std::span<const std::byte> bytes);

  std::span<const std::byte> bytes() const { return bytes_; }

  // Gives the memory of whole pages of `part` back to the system if they are a mapped file's;
  // reading them again reads the file.
  void release(std::span<const std::byte> part) const;

 private:
  std::span<const std::byte> bytes_;
  void* mapping_ = nullptr;
  size_t mapping_size_ = 0;
  MemoryBlock copy_;
};

}  // namespace edgewise
