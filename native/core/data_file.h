// A `.ptd` file: data by name.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "edgewise/program.h"
#include "file_bytes.h"
#include "flat_tensor_generated.h"

namespace edgewise {

// Immutable once opened. Every span lies inside the file and lives as long as this object.
class DataFile {
 public:
  struct Entry {
    std::span<const std::byte> bytes;
    const fb::TensorLayout* layout = nullptr;  // null: not a tensor
  };

  // Checks header, flatbuffer (unless `verification` is kMinimal), segments and names.
  // `name` is what messages call the file.
  static Result<std::unique_ptr<DataFile>> open(FileBytes bytes, std::string name,
                                                Verification verification);

  const std::string& name() const { return name_; }
  // Null if there is none.
  const Entry* find(std::string_view key) const;
  const std::unordered_map<std::string_view, Entry>& entries() const { return entries_; }
  const FileBytes& file() const { return bytes_; }
  void release(std::span<const std::byte> part) const { bytes_.release(part); }
  Status check_whole() const { return bytes_.check_whole(); }

 private:
  Status read_flatbuffer(Verification verification);
  Status read_entries(const fb::FlatTensor& table, std::span<const std::byte> segments);

  FileBytes bytes_;
  std::string name_;
  std::unordered_map<std::string_view, Entry> entries_;
};

}  // namespace edgewise
