// A DiskCache in a folder.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "edgewise/disk_cache.h"
#include "edgewise/status.h"
#include "platform/mapped_file.h"

namespace edgewise::platform {

struct CacheOptions {
  std::string folder;
  size_t most_bytes = 0;      // of all programs; 0: no bound
  bool verifies_all = false;  // contents are compared with their hash whenever they are mapped
  // Told what goes wrong with the cache: loading goes on without. Never empty.
  std::function<void(const std::string&)> warn;
};

// A file of the program.
struct CacheSource {
  std::span<const std::byte> bytes;
  const FileIdentity* identity;  // null: none is known, so that its bytes are hashed
  std::function<void(std::span<const std::byte>)> release;  // of bytes that were read
};

class FileCache : public DiskCache {
 public:
  // Writes down what it knows of the files that it made, and removes what was not used for long
  // if there is too much. To be called when a method was loaded.
  virtual void finish() = 0;
  // An error if a file was cut short while it was mapped.
  virtual Status check_whole() const = 0;
};

// Null, with a warning, if the folder cannot be used. The sources outlive the cache.
std::unique_ptr<FileCache> open_cache(const CacheOptions& options,
                                      std::vector<CacheSource> sources);

}  // namespace edgewise::platform
