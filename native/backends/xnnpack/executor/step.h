// A part of a graph that runs as one: consecutive nodes in XNNPACK, or a fused kernel.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "backends/xnnpack/graph.h"
#include "edgewise/profile.h"

namespace edgewise::xnnpack {

// Times of the parts of a step's parts(), into a run's profile.
class PartTimes {
 public:
  PartTimes(RunProfile& profile, const ProfileParts& parts, size_t first)
      : profile_(profile), parts_(parts), first_(first) {}
  void add(size_t part, int64_t begin, int64_t end) {
    profile_.add_part(parts_, first_ + part, begin, end);
  }

 private:
  RunProfile& profile_;
  const ProfileParts& parts_;
  size_t first_;
};

// Indices are those of the whole graph's values. All of it is used under the program state's
// mutex.
class Step {
 public:
  virtual ~Step() = default;

  // Values that it reads and writes, constants aside.
  virtual const std::vector<uint32_t>& reads() const = 0;
  virtual const std::vector<uint32_t>& writes() const = 0;

  // Whether reshape() can go to `shapes`; if not, make a new one.
  virtual bool can_take(const std::vector<Shape>&) const { return true; }
  virtual Status reshape(const std::vector<Shape>& shapes) = 0;
  // Bytes that it needs while it runs, after reshape().
  virtual size_t scratch_bytes() const { return 0; }
  // `addresses` of all values that it reads and writes.
  virtual Status set_pointers(std::span<void* const> addresses, std::byte* scratch) = 0;
  virtual Status run() = 0;

  // What a profile tells apart. A step that is all of its part leaves the nodes to the executor.
  virtual std::vector<ProfilePart> parts() const = 0;
  // run(), and the time of each part.
  virtual Status run_profiled(PartTimes& times) {
    const int64_t begin = profile_clock();
    EDGEWISE_RETURN_IF_ERROR(run());
    times.add(0, begin, profile_clock());
    return {};
  }
};

}  // namespace edgewise::xnnpack
