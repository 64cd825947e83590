#include "kernels/accuracy.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

namespace edgewise::testing {
namespace {

struct Table {
  std::vector<AccuracyRow> rows;
  std::map<std::string, size_t, std::less<>> by_name;
  std::string problem;
};

std::vector<std::string> words(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> result;
  for (std::string word; stream >> word;) result.push_back(word);
  return result;
}

// "exact", "2 ulp", "4 eps".
std::optional<Bound> read_bound(const std::string& text) {
  const std::vector<std::string> parts = words(text);
  if (parts.size() == 1 && parts[0] == "exact") return Bound{};
  if (parts.size() != 2 || (parts[1] != "ulp" && parts[1] != "eps")) return std::nullopt;
  Bound bound{parts[1] == "eps", 0};
  const char* end = parts[0].data() + parts[0].size();
  const auto read = std::from_chars(parts[0].data(), end, bound.count);
  if (read.ec != std::errc() || read.ptr != end || !(bound.count > 0)) return std::nullopt;
  return bound;
}

Table read_table() {
  const auto path = std::filesystem::path(EDGEWISE_NATIVE) / "kernels" / "accuracy.txt";
  std::ifstream file(path);
  Table table;
  std::map<std::string, std::vector<std::string>> sets;
  std::string line;
  for (size_t number = 1; std::getline(file, line); ++number) {
    if (line.empty() || line.front() == '#') continue;
    const auto wrong = [&](const std::string& what) {
      table.problem += "accuracy.txt:" + std::to_string(number) + ": " + what + "\n";
    };
    if (const size_t equals = line.find('='); equals != std::string::npos) {
      const auto name = words(line.substr(0, equals));
      for (const std::string& type : words(line.substr(equals + 1))) {
        auto& set = sets[name.front()];
        if (const auto part = sets.find(type); part != sets.end())
          set.insert(set.end(), part->second.begin(), part->second.end());
        else
          set.push_back(type);
      }
      continue;
    }
    std::vector<std::string> columns;
    std::istringstream stream(line);
    for (std::string column; std::getline(stream, column, '|');) columns.push_back(column);
    if (columns.size() != 5) {
      wrong("a row has types, three bounds and names");
      continue;
    }
    AccuracyRow row;
    for (const std::string& type : words(columns[0])) {
      if (const auto set = sets.find(type); set != sets.end())
        row.types.insert(row.types.end(), set->second.begin(), set->second.end());
      else
        row.types.push_back(type);
    }
    const auto single = read_bound(columns[1]), whole = read_bound(columns[2]),
               half = read_bound(columns[3]);
    if (!single || !whole || !half) {
      wrong("a bound is \"exact\", \"n ulp\" or \"n eps\"");
      continue;
    }
    row.single = *single, row.whole = *whole, row.half = *half;
    row.names = words(columns[4]);
    for (const std::string& name : row.names) {
      if (!table.by_name.emplace(name, table.rows.size()).second) wrong(name + " has two rows");
    }
    table.rows.push_back(std::move(row));
  }
  if (table.rows.empty()) table.problem += path.string() + " has no rows";
  return table;
}

const Table& table() {
  static const Table read = read_table();
  return read;
}

}  // namespace

std::string Bound::describe() const {
  if (count == 0) return "the same";
  std::ostringstream text;
  text << count << (terms ? " eps of the terms' magnitudes" : " ulp");
  return text.str();
}

Bound AccuracyRow::of(ScalarType type) const {
  switch (type) {
    case ScalarType::kFloat:
      return single;
    case ScalarType::kDouble:
      return whole;
    case ScalarType::kHalf:
    case ScalarType::kBFloat16:
      return half;
    default:
      return {};
  }
}

const AccuracyRow* find_accuracy(std::string_view kernel) {
  const Table& all = table();
  auto found = all.by_name.find(kernel);
  if (found == all.by_name.end()) found = all.by_name.find(kernel.substr(0, kernel.find('.')));
  return found == all.by_name.end() ? nullptr : &all.rows[found->second];
}

std::string accuracy_problem() { return table().problem; }
const std::vector<AccuracyRow>& accuracy_rows() { return table().rows; }

}  // namespace edgewise::testing
