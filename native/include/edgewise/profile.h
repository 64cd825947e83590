// Where the time of a run goes: instruction by instruction and, inside delegates, part by part.
//
//   edgewise::RunProfile profile;
//   method->execute(&profile);
//   for (const edgewise::ProfileEvent& event : profile.events()) ...
//
// Without a profile a run pays one branch for each instruction.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace edgewise {

// Something inside a delegate that is timed by itself: an operator of the backend's library, a
// kernel of the backend's own, planning.
struct ProfilePart {
  std::string name;
  std::vector<uint32_t> nodes;  // of the delegate's payload, by position; empty: not one of these
  std::vector<std::pair<std::string, double>> counters;  // what a simulator counts: "cycles"
};

// The parts of a delegate. One list serves many runs.
using ProfileParts = std::shared_ptr<const std::vector<ProfilePart>>;

struct ProfileEvent {
  static constexpr uint32_t kWhole = UINT32_MAX;

  int64_t begin = 0;  // nanoseconds, as profile_clock()
  int64_t end = 0;
  uint32_t instruction = 0;  // of the method, all chains one after the other
  uint32_t part = kWhole;    // as RunProfile::part(), of the instruction's delegate
};

// Nanoseconds of the steady clock, which is CLOCK_MONOTONIC on Linux; without an operating system
// what the firmware's edgewise_clock_nanoseconds() says.
#ifdef EDGEWISE_BARE_METAL
int64_t profile_clock();
#else
inline int64_t profile_clock() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}
#endif

// One run of one method. A part's event comes before that of its instruction.
class RunProfile {
 public:
  // A loop may go round for ever; what comes later is counted, not kept.
  static constexpr size_t kMaxEvents = size_t{1} << 20;

  // Of the whole of Method::execute().
  int64_t begin() const { return begin_; }
  int64_t end() const { return end_; }
  const std::vector<ProfileEvent>& events() const { return events_; }
  size_t dropped() const { return dropped_; }
  const ProfilePart& part(uint32_t index) const;

  // For delegates: `index` of `parts`, which ran from `begin` to `end`.
  void add_part(const ProfileParts& parts, size_t index, int64_t begin, int64_t end);
  // The same for a part that is described now.
  void add_part(ProfilePart part, int64_t begin, int64_t end);

  // For the interpreter. Forgets what was recorded.
  void start(size_t expected_events);
  void start_instruction(uint32_t instruction) { instruction_ = instruction; }
  // The instruction ends now; the next one starts.
  void end_instruction();
  void stop() { end_ = profile_clock(); }

 private:
  struct List {
    ProfileParts parts;
    uint32_t first;  // number of its first part
  };

  void add(const ProfileEvent& event);
  uint32_t number_of(const ProfileParts& parts);

  int64_t begin_ = 0;
  int64_t end_ = 0;
  int64_t mark_ = 0;  // the running instruction's start
  uint32_t instruction_ = 0;
  std::vector<ProfileEvent> events_;
  std::vector<List> lists_;
  size_t last_list_ = 0;
  size_t dropped_ = 0;
};

}  // namespace edgewise
