// A file as memory.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "edgewise/status.h"

namespace edgewise::platform {

// What tells one file's contents from another's without reading them: device, number, size, when
// it was written last and when it was changed last (seconds and nanoseconds each). Two writes
// within a tick of the file system's clock cannot be told apart.
using FileIdentity = std::array<int64_t, 7>;

// Read-only, aligned to kBufferAlignment and followed by kReadPadding readable bytes. What others
// write to the file meanwhile is seen as it is.
class MappedFile {
 public:
  virtual ~MappedFile() = default;
  virtual std::span<const std::byte> bytes() const = 0;
  virtual const std::string& name() const = 0;
  // As it was when the file was mapped.
  virtual const FileIdentity& identity() const = 0;
  // False from when bytes were read that the file has no more; zeros are read instead.
  virtual bool is_whole() const = 0;
  // Gives the memory of whole pages of `part` back to the system; reading them again reads the
  // file.
  virtual void release(std::span<const std::byte> part) const = 0;
};

// A file that is mapped already, and unchanged since, is not mapped again: its bytes have one
// address in the process, by which programs find what others made of them.
// `beyond`: how many bytes behind its end are readable, kReadPadding at least.
Result<std::shared_ptr<const MappedFile>> map_file(const std::string& path, size_t beyond = 0);

}  // namespace edgewise::platform
