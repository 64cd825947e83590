// Notices that a mapped file was cut short. Reading what is gone then gets SIGBUS, which would end
// the process; instead zeros are mapped over it, and whoever reads asks afterwards.
#pragma once

#include <cstddef>

namespace edgewise::platform {

// Of one mapping, for as long as it exists. The first object of the process installs a handler of
// SIGBUS, and the last one puts back the handler that it found, unless there is another one by
// then. Faults outside of the mappings, and signals that somebody sent, go on to the handler
// before.
class CutShortGuard {
 public:
  // Of whole pages, mapped to be read only, from `base` on.
  CutShortGuard(const void* base, size_t size);
  ~CutShortGuard();
  CutShortGuard(const CutShortGuard&) = delete;
  CutShortGuard& operator=(const CutShortGuard&) = delete;

  // False from when somebody read a page that is gone, in any thread.
  bool is_whole() const;

 private:
  struct Range;
  Range* range_;
};

}  // namespace edgewise::platform
