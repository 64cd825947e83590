#include "tools/profile_table.h"

#include <algorithm>
#include <utility>

#include "tools/text.h"

namespace edgewise::tools {

namespace {

constexpr size_t kShown = 20;

double microseconds(int64_t begin, int64_t end) { return static_cast<double>(end - begin) / 1e3; }

double sum(const std::vector<double>& times) {
  double total = 0;
  for (const double time : times) total += time;
  return total;
}

struct Line {
  const ProfileTable::Key* key;
  const ProfileTable::Row* row;
  double share;  // of all time
};

// The slowest first.
std::vector<Line> lines(const ProfileTable& table) {
  const double total = std::max(sum(table.runs_us()), 1e-9);
  std::vector<Line> result;
  for (const auto& [key, row] : table.rows()) result.push_back({&key, &row, sum(row.us) / total});
  std::ranges::stable_sort(result, std::ranges::greater(), &Line::share);
  return result;
}

// What a row is called: the part, else the operator or backend that the instruction calls.
std::string name_of(const ProfileTable::Key& key, const MethodInfo& method) {
  if (!key.part.empty()) return key.part;
  const InstructionInfo& instruction = method.instructions[key.instruction];
  if (instruction.kind == InstructionInfo::Kind::kKernel) {
    return method.operators[instruction.target];
  }
  if (instruction.kind == InstructionInfo::Kind::kDelegate) {
    return method.delegates[instruction.target].backend + ", around its operators";
  }
  return std::string(to_string(instruction.kind));
}

double calls_of(const Line& line) {
  return static_cast<double>(line.row->calls) / static_cast<double>(line.row->us.size());
}

}  // namespace

void ProfileTable::add(const RunProfile& run) {
  runs_us_.push_back(microseconds(run.begin(), run.end()));
  dropped_ += run.dropped();
  // Parts come before the event of their instruction, which ends its call.
  double inside = 0;
  std::map<Key, size_t> seen;
  for (const ProfileEvent& event : run.events()) {
    const double us = microseconds(event.begin, event.end);
    if (event.part == ProfileEvent::kWhole) {
      add({event.instruction, {}, {}, 0}, us - inside);
      inside = 0;
      seen.clear();
      continue;
    }
    const ProfilePart& part = run.part(event.part);
    Key key{event.instruction, part.name, part.nodes, 0};
    key.occurrence = seen[key]++;
    add(std::move(key), us);
    inside += us;
  }
  for (auto& [key, row] : rows_) row.us.resize(runs_us_.size());
}

void ProfileTable::add(Key key, double us) {
  Row& row = rows_[std::move(key)];
  row.us.resize(runs_us_.size());
  row.us.back() += us;
  ++row.calls;
}

std::string to_text(const ProfileTable& table, const MethodInfo& method) {
  std::string text;
  append(text, "  profile of %zu runs, %.3f ms each (median)\n", table.runs_us().size(),
         summarize(table.runs_us()).median / 1e3);
  append(text, "  %10s %10s %7s %6s %5s  %s\n", "median us", "p90 us", "share", "calls", "step",
         "what");
  const std::vector<Line> all = lines(table);
  double rest = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    const Line& line = all[i];
    if (i >= kShown) {
      rest += line.share;
      continue;
    }
    const Summary us = summarize(line.row->us);
    append(text, "  %10.1f %10.1f %6.1f%% %6.4g %5u  ", us.median, us.p90, line.share * 100,
           calls_of(line), line.key->instruction);
    text += name_of(*line.key, method) + "\n";
  }
  if (all.size() > kShown) {
    append(text, "  and %zu more, %.1f%%: --json\n", all.size() - kShown, rest * 100);
  }
  if (table.dropped() != 0) append(text, "  %zu events were too many to keep\n", table.dropped());
  return text;
}

std::string to_json(const ProfileTable& table, const MethodInfo& method) {
  std::string text;
  const auto times = [](const std::vector<double>& us) {
    const Summary found = summarize(us);
    std::string result;
    append(result, "{\"min\": %.3f, \"median\": %.3f, \"p90\": %.3f}", found.min, found.median,
           found.p90);
    return result;
  };
  append(text, "{\"runs\": %zu, \"dropped\": %zu, \"run_us\": ", table.runs_us().size(),
         table.dropped());
  text += times(table.runs_us()) + ", \"rows\": ";
  text += list(lines(table), [&](const Line& line) {
    std::string row;
    append(row, "{\"instruction\": %u, \"kind\": ", line.key->instruction);
    row += quote(to_string(method.instructions[line.key->instruction].kind));
    row += ", \"name\": " + quote(name_of(*line.key, method));
    row += std::string(", \"is_part\": ") + (line.key->part.empty() ? "false" : "true");
    row += ", \"payload_nodes\": " +
           list(line.key->nodes, [](uint32_t node) { return std::to_string(node); });
    append(row, ", \"calls\": %.6g, \"share\": %.6f, \"us\": ", calls_of(line), line.share);
    return row + times(line.row->us) + "}";
  });
  return text + "}";
}

}  // namespace edgewise::tools
