// Where the time of several runs went, by instruction and by part of a delegate.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "edgewise/profile.h"
#include "edgewise/program.h"

namespace edgewise::tools {

class ProfileTable {
 public:
  // What makes a row. Of a delegate's call, `part` is one of its parts; "" is what none of them
  // took, and what a kernel's call took.
  struct Key {
    uint32_t instruction = 0;
    std::string part;
    std::vector<uint32_t> nodes;  // of the payload
    size_t occurrence = 0;        // of parts that look the same within one call

    auto operator<=>(const Key&) const = default;
  };
  struct Row {
    std::vector<double> us;  // in each run, 0 where it did not run
    size_t calls = 0;        // in all runs together
  };

  void add(const RunProfile& run);

  const std::map<Key, Row>& rows() const { return rows_; }
  const std::vector<double>& runs_us() const { return runs_us_; }
  size_t dropped() const { return dropped_; }

 private:
  void add(Key key, double us);

  std::map<Key, Row> rows_;
  std::vector<double> runs_us_;
  size_t dropped_ = 0;
};

std::string to_text(const ProfileTable& table, const MethodInfo& method);
std::string to_json(const ProfileTable& table, const MethodInfo& method);

}  // namespace edgewise::tools
