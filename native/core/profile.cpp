#include "edgewise/profile.h"

#include <algorithm>

namespace edgewise {

const ProfilePart& RunProfile::part(uint32_t index) const {
  const auto after = std::upper_bound(lists_.begin(), lists_.end(), index,
                                      [](uint32_t i, const List& list) { return i < list.first; });
  const List& list = *std::prev(after);
  return (*list.parts)[index - list.first];
}

uint32_t RunProfile::number_of(const ProfileParts& parts) {
  if (last_list_ < lists_.size() && lists_[last_list_].parts == parts) {
    return lists_[last_list_].first;
  }
  const auto found = std::find_if(lists_.begin(), lists_.end(),
                                  [&](const List& list) { return list.parts == parts; });
  last_list_ = static_cast<size_t>(found - lists_.begin());
  if (found == lists_.end()) {
    const uint32_t first =
        lists_.empty() ? 0
                       : lists_.back().first + static_cast<uint32_t>(lists_.back().parts->size());
    lists_.push_back({parts, first});
  }
  return lists_[last_list_].first;
}

void RunProfile::add(const ProfileEvent& event) {
  if (events_.size() < kMaxEvents) {
    events_.push_back(event);
  } else {
    ++dropped_;
  }
}

void RunProfile::add_part(const ProfileParts& parts, size_t index, int64_t begin, int64_t end) {
  add({begin, end, instruction_, number_of(parts) + static_cast<uint32_t>(index)});
}

void RunProfile::add_part(ProfilePart part, int64_t begin, int64_t end) {
  // Without room for its event there is none for its description.
  if (events_.size() >= kMaxEvents) {
    ++dropped_;
    return;
  }
  std::vector<ProfilePart> one;
  one.push_back(std::move(part));
  add_part(std::make_shared<const std::vector<ProfilePart>>(std::move(one)), 0, begin, end);
}

void RunProfile::start(size_t expected_events) {
  events_.clear();
  events_.reserve(std::min(expected_events, kMaxEvents));
  lists_.clear();
  last_list_ = 0;
  dropped_ = 0;
  instruction_ = 0;
  begin_ = end_ = mark_ = profile_clock();
}

void RunProfile::end_instruction() {
  const int64_t now = profile_clock();
  add({mark_, now, instruction_, ProfileEvent::kWhole});
  mark_ = now;
}

}  // namespace edgewise
