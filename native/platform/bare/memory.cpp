// operator new from the firmware's array, for programs that have no heap (edgewise/firmware.h).
#include <cstdlib>
#include <new>

#include "edgewise/firmware.h"
#include "platform/bare/arena.h"

namespace {

edgewise::platform::bare::Arena& arena() {
  static edgewise::platform::bare::Arena instance(edgewise_memory, edgewise_memory_bytes);
  return instance;
}

constexpr size_t kDefaultAlignment = 8;

void* take(size_t bytes, size_t alignment) {
  void* data = arena().take(bytes, alignment);
  if (data != nullptr) return data;
  edgewise_out_of_memory(bytes);
  std::abort();
}

}  // namespace

extern "C" {
size_t edgewise_memory_used() { return arena().used(); }
size_t edgewise_memory_peak() { return arena().reached(); }
size_t edgewise_memory_calls() { return arena().count(); }
}

void* operator new(size_t bytes) { return take(bytes, kDefaultAlignment); }
void* operator new[](size_t bytes) { return take(bytes, kDefaultAlignment); }
void* operator new(size_t bytes, std::align_val_t alignment) {
  return take(bytes, static_cast<size_t>(alignment));
}
void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  return arena().take(bytes, kDefaultAlignment);
}
void* operator new(size_t bytes, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return arena().take(bytes, static_cast<size_t>(alignment));
}
void operator delete(void* data) noexcept { arena().give_back(data); }
void operator delete[](void* data) noexcept { arena().give_back(data); }
void operator delete(void* data, size_t) noexcept { arena().give_back(data); }
void operator delete[](void* data, size_t) noexcept { arena().give_back(data); }
void operator delete(void* data, std::align_val_t) noexcept { arena().give_back(data); }
void operator delete(void* data, size_t, std::align_val_t) noexcept { arena().give_back(data); }
