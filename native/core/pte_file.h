// A `.pte` file's flatbuffer and the data that it refers to.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "data_file.h"
#include "edgewise/backend.h"
#include "edgewise/program.h"
#include "edgewise/status.h"
#include "file_bytes.h"
#include "platform/file_cache.h"
#include "program_generated.h"

namespace edgewise {

// Immutable once opened. Every span returned lies inside the file and lives as long as
// this object.
class PteFile : public NamedData {
 public:
  // Checks header, flatbuffer (unless `verification` is kMinimal), segment table and
  // named data. No name may be in two of the files.
  static Result<std::unique_ptr<PteFile>> open(FileBytes bytes,
                                               std::vector<std::unique_ptr<DataFile>> data,
                                               Verification verification);

  const fb::Program& program() const { return *program_; }
  size_t size_bytes() const { return bytes_.bytes().size(); }

  // The first `nbytes` of constant `index`.
  Result<std::span<const std::byte>> constant(uint32_t index, size_t nbytes) const;
  // The first `nbytes` of entry `index` of mutable data list `list`.
  Result<std::span<const std::byte>> initial_value(uint64_t list, uint32_t index,
                                                   size_t nbytes) const;
  Result<std::span<const std::byte>> delegate_payload(
      const fb::BackendDelegateDataReference& reference) const;
  // The data of a tensor that lies in a data file, which must say that it has this type and
  // shape.
  Result<std::span<const std::byte>> external(const fb::Tensor& tensor, size_t nbytes) const;
  // NamedData; in the data files, too.
  Result<std::span<const std::byte>> find(std::string_view key) const override;
  // Whether the program itself, not a data file, has data of that name.
  bool contains(std::string_view key) const { return named_.contains(key); }
  size_t bytes() const override;
  void release(std::span<const std::byte> bytes) const override;
  // This file and the data files.
  std::vector<const FileBytes*> files() const;
  // What is made of these files on disk; null: nothing. Lives as long as they do.
  platform::FileCache* cache() const { return cache_.get(); }
  void open_cache(const platform::CacheOptions& options);
  // Of the files and of what lies in the cache, as FileBytes::check_whole.
  Status check_whole() const;

 private:
  Status read_segments(std::span<const std::byte> data);
  Status read_named_data();
  Status check_data_files() const;
  Result<std::span<const std::byte>> segment(uint64_t index) const;
  Result<std::span<const std::byte>> subsegment(const fb::SubsegmentOffsets& list, uint32_t index,
                                                size_t nbytes) const;

  FileBytes bytes_;
  std::vector<std::unique_ptr<DataFile>> data_;
  const fb::Program* program_ = nullptr;
  std::vector<std::span<const std::byte>> segments_;
  std::unordered_map<std::string_view, uint32_t> named_;
  std::unique_ptr<platform::FileCache> cache_;  // last: it reads the files
};

// Item `i` < size() of a vector. The flatbuffers verifier leaves open whether items lie at
// multiples of their size, and those of 8 bytes do not in many files of ExecuTorch.
template <typename T>
T item(const flatbuffers::Vector<T>& items, uint32_t i) {
  T value;
  std::memcpy(&value, items.Data() + size_t{i} * sizeof(T), sizeof(T));
  return flatbuffers::EndianScalar(value);
}

// Copies all items.
template <typename To, typename T>
void copy_items(const flatbuffers::Vector<T>& items, std::vector<To>* result) {
  result->clear();
  result->reserve(items.size());
  for (uint32_t i = 0; i < items.size(); ++i) result->push_back(item(items, i));
}

}  // namespace edgewise
