// What backends make of a program's weights, kept in files from one process to the next.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace edgewise {

// LoadOptions::cache_dir, as the delegates of one program see it; docs/runtime.md says what lies
// there. May be used by several threads.
class DiskCache {
 public:
  struct Entry {
    std::shared_ptr<const std::byte> data;  // read-only, aligned to a page; null: there is none
    size_t size = 0;
  };

  virtual ~DiskCache() = default;

  // Names `data` by the contents of the program's file, or data file, that it lies in, and by where
  // it lies there, so that the same name stands for the same bytes in every process. Empty if it
  // lies in none.
  virtual std::string name_of(const void* data) = 0;

  // What was kept of `source`, which lies in one of these files, under `key`: all that it depends
  // on but the source file's contents, the builds of the code that makes and reads it included.
  // At least `most` bytes are readable, zeros from where the entry ends, so that whoever is sure
  // to read no more needs no other check of the size that somebody else may have written.
  virtual Entry find(const void* source, std::string_view key, size_t most) = 0;

  // Keeps `bytes`, at most `most` of them, and gives them as find() does; null if they cannot be
  // kept.
  virtual Entry insert(const void* source, std::string_view key, std::span<const std::byte> bytes,
                       size_t most) = 0;
};

}  // namespace edgewise
