// A `.ptd` file: every entry is found by its name and read.
#include "core/data_file.h"
#include "target.h"

namespace edgewise::fuzz {

void run_one(std::span<const std::byte> bytes) {
  auto copy = FileBytes::copy(bytes);
  if (!copy) return;
  const auto file =
      DataFile::open(std::move(*copy), "data.ptd", Verification::kInternalConsistency);
  if (!file) return;
  volatile unsigned char sum = 0;
  for (const auto& [name, entry] : file.value()->entries()) {
    if (file.value()->find(name) == nullptr) __builtin_trap();
    for (const std::byte byte : entry.bytes) sum = sum ^ static_cast<unsigned char>(byte);
    if (entry.layout != nullptr && entry.layout->sizes() != nullptr) {
      for (const int32_t size : *entry.layout->sizes())
        sum = sum ^ static_cast<unsigned char>(size);
    }
  }
}

}  // namespace edgewise::fuzz
