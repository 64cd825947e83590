// The bytes of a program: a file mapped read-only, or a copy of the caller's bytes.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "edgewise/status.h"
#include "memory.h"
#include "platform/mapped_file.h"

namespace edgewise {

// Bytes aligned to kBufferAlignment and followed by kReadPadding readable bytes. What others write
// to a mapped file while it is in use is seen as it is; where they cut it short, zeros are read.
class FileBytes {
 public:
  // A file that is mapped already, and unchanged since, is not mapped again: its bytes have
  // one address in the process, by which programs find what others made of them.
  static Result<FileBytes> map(const std::string& path);
  static Result<FileBytes> read(const std::string& path);
  static Result<FileBytes> copy(std::span<const std::byte> bytes);
  // The caller's, which are as this class promises and outlive it.
  static Result<FileBytes> in_place(std::span<const std::byte> bytes);

  std::span<const std::byte> bytes() const { return bytes_; }

  // An error from when bytes were read that the file has no more.
  Status check_whole() const;

  // What tells the file from others; null if these are not a mapped file's.
  const platform::FileIdentity* identity() const {
    return mapping_ == nullptr ? nullptr : &mapping_->identity();
  }

  // Gives the memory of whole pages of `part` back to the system if they are this file's and
  // it is mapped; reading them again reads the file.
  void release(std::span<const std::byte> part) const;

 private:
  std::span<const std::byte> bytes_;
  std::shared_ptr<const platform::MappedFile> mapping_;
  MemoryBlock copy_;
};

}  // namespace edgewise
