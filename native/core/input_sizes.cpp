#include "input_sizes.h"

#include <cstring>
#include <map>
#include <string>
#include <utility>

namespace edgewise {

Status read_input_sizes(const PteFile& file, MethodInfo& info) {
  const std::string key = "edgewise.input_sizes/" + info.name;
  if (!file.contains(key)) return Status::ok_status();
  const Result<std::span<const std::byte>> found = file.find(key);
  if (!found) return found.status();
  const auto invalid = [&](size_t input) {
    return error(Code::kInvalidProgram, "what the file says of the sizes of input %zu does not fit",
                 input);
  };
  std::span<const std::byte> rest = *found;
  for (size_t i = 0; i < info.inputs.size(); ++i) {
    if (rest.empty()) return invalid(i);
    const auto rank = static_cast<size_t>(rest[0]);
    rest = rest.subspan(1);
    if (rank == 0) continue;
    ValueInfo& input = info.inputs[i];
    const size_t bytes = rank * sizeof(int64_t);
    if (rank != input.sizes.size() || bytes > rest.size()) return invalid(i);
    input.size_symbols.resize(rank);
    std::memcpy(input.size_symbols.data(), rest.data(), bytes);
    rest = rest.subspan(bytes);
  }
  return rest.empty() ? Status::ok_status() : invalid(info.inputs.size());
}

std::vector<EqualSizes> find_equal_sizes(const MethodInfo& info) {
  std::map<int64_t, std::pair<size_t, size_t>> first;
  std::vector<EqualSizes> equal;
  for (size_t i = 0; i < info.inputs.size(); ++i) {
    const std::vector<int64_t>& symbols = info.inputs[i].size_symbols;
    for (size_t dim = 0; dim < symbols.size(); ++dim) {
      if (symbols[dim] >= kAnySize) continue;
      const auto [known, is_new] = first.try_emplace(symbols[dim], i, dim);
      if (!is_new) equal.push_back({known->second.first, known->second.second, i, dim});
    }
  }
  return equal;
}

}  // namespace edgewise
