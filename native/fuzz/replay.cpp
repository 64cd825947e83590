// Runs a target on the files of folders, without a fuzzer: `replay_pte FOLDER...`.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

#include "target.h"

int main(int count, char** arguments) {
  namespace fs = std::filesystem;
  std::vector<fs::path> files;
  for (int i = 1; i < count; ++i) {
    for (const auto& entry : fs::directory_iterator(arguments[i])) {
      if (entry.is_regular_file()) files.push_back(entry.path());
    }
  }
  std::sort(files.begin(), files.end());
  for (const fs::path& path : files) {
    std::ifstream stream(path, std::ios::binary);
    const std::vector<char> bytes{std::istreambuf_iterator<char>(stream), {}};
    std::fprintf(stderr, "%s\n", path.filename().c_str());
    const auto begin = std::chrono::steady_clock::now();
    edgewise::fuzz::run_one(std::as_bytes(std::span(bytes)));
    if (std::chrono::steady_clock::now() - begin > std::chrono::seconds(5)) {
      std::fprintf(stderr, "took more than 5 s\n");
      return 1;
    }
  }
  std::printf("%zu files\n", files.size());
  return files.empty() ? 1 : 0;
}
