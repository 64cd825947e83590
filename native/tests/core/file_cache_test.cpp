// The folder of what backends make of weights. tests/runtime/test_runtime_cache.py has what
// programs see of it.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "core/sha256.h"
#include "edgewise/tensor.h"
#include "fault_address.h"
#include "platform/file_cache.h"

namespace edgewise {
namespace {

namespace fs = std::filesystem;

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

// FIPS 180-4's examples, and what sha256sum says of lengths around a block's.
TEST(Sha256, OfTextsOfEveryKindOfLength) {
  for (const auto& [text, expected] : std::initializer_list<std::pair<std::string, const char*>>{
           {"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
           {"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
           {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
           {std::string(55, 'a'),
            "9f4390f8d30c2dd92ec9f095b65e2b9ae9b0a925a5258e241c9f1e910f734318"},
           {std::string(64, 'a'),
            "ffe054fe7ae0cb6dc65c3af9b61d5209f439851db43d0ba5997337df154668eb"},
           {std::string(1'000'000, 'a'),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"},
       }) {
    EXPECT_EQ(to_hex(sha256(bytes_of(text))), expected);
    EXPECT_EQ(to_hex(sha256_portable(bytes_of(text))), expected);
  }
}

TEST(Sha256, SaysWhichPartsItHasRead) {
  const std::string text((size_t{33} << 20) + 5, 'x');
  size_t read = 0;
  const Digest with = sha256(bytes_of(text), [&](auto part) { read += part.size(); });
  EXPECT_EQ(read, text.size() / 64 * 64);
  EXPECT_EQ(with, sha256(bytes_of(text)));
}

class FileCacheTest : public testing::Test {
 protected:
  FileCacheTest() {
    std::string path = (fs::temp_directory_path() / "edgewise_cache_XXXXXX").string();
    folder = mkdtemp(path.data());
  }
  ~FileCacheTest() override { fs::remove_all(folder); }

  std::unique_ptr<platform::FileCache> open(size_t most = 0) {
    return platform::open_cache({.folder = (folder / "a" / "b").string(),
                                 .most_bytes = most,
                                 .warn = [this](const std::string& text) { told.push_back(text); }},
                                {{bytes_of(program), nullptr, {}}});
  }
  std::vector<fs::path> entries() const {
    std::vector<fs::path> result;
    for (const auto& entry : fs::recursive_directory_iterator(folder)) {
      if (entry.is_regular_file() && entry.path().filename().string().size() == 64) {
        result.push_back(entry.path());
      }
    }
    return result;
  }

  fs::path folder;
  std::vector<std::string> told;
  std::string program = std::string(1000, 'p');
};

TEST_F(FileCacheTest, GivesWhatWasInsertedAndZerosBehindIt) {
  const std::string packed(100'000, 'w');
  constexpr size_t kMost = 500'000;
  for (int i = 0; i < 2; ++i) {
    const auto cache = open();
    ASSERT_NE(cache, nullptr);
    const void* source = program.data() + 10;
    const auto before = cache->find(source, "key", kMost);
    EXPECT_EQ(before.data != nullptr, i == 1);
    const auto entry = i == 0 ? cache->insert(source, "key", bytes_of(packed), kMost) : before;
    ASSERT_NE(entry.data, nullptr);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(entry.data.get()) % 4096, 0u);
    ASSERT_EQ(entry.size, packed.size());
    EXPECT_TRUE(std::ranges::equal(std::span(entry.data.get(), entry.size), bytes_of(packed)));
    EXPECT_TRUE(std::all_of(entry.data.get() + entry.size, entry.data.get() + kMost + kReadPadding,
                            [](std::byte byte) { return byte == std::byte{0}; }));
    EXPECT_EQ(cache->find(source, "another key", kMost).data, nullptr);
    EXPECT_EQ(cache->find(&told, "key", kMost).data, nullptr) << "in no file of the program";
    cache->finish();
    EXPECT_TRUE(cache->check_whole().ok());
  }
  EXPECT_TRUE(told.empty()) << told[0];
}

TEST_F(FileCacheTest, NamesDataByContentsAndPlace) {
  const auto cache = open();
  const std::string name = cache->name_of(program.data() + 7);
  EXPECT_EQ(name, to_hex(sha256(bytes_of(program))) + ":7 ");
  EXPECT_EQ(cache->name_of(program.data() + program.size()), "");
}

TEST_F(FileCacheTest, TellsThatAMappedFileWasCutShort) {
  if (!test::has_fault_addresses()) GTEST_SKIP() << "this system names another address";
  const std::string packed(100'000, 'w');
  const auto cache = open();
  const auto entry = cache->insert(program.data(), "key", bytes_of(packed), packed.size());
  ASSERT_NE(entry.data, nullptr);
  const auto files = entries();
  ASSERT_EQ(files.size(), 1u);
  fs::resize_file(files[0], 4096);
  EXPECT_EQ(*(entry.data.get() + 50'000), std::byte{0});
  EXPECT_EQ(cache->check_whole().code(), Code::kIo);
  const auto again = open();
  EXPECT_EQ(again->find(program.data(), "key", packed.size()).data, nullptr);
  ASSERT_EQ(told.size(), 1u);
  EXPECT_NE(told[0].find("is damaged"), std::string::npos) << told[0];
}

TEST_F(FileCacheTest, KeepsNothingBeyondItsBoundOrThatOfAnEntry) {
  const std::string packed(1000, 'w');
  const auto cache = open(1500);
  EXPECT_EQ(cache->insert(program.data(), "a", bytes_of(packed), 999).data, nullptr);
  EXPECT_NE(cache->insert(program.data(), "b", bytes_of(packed), 1000).data, nullptr);
  EXPECT_TRUE(told.empty());
  EXPECT_EQ(cache->insert(program.data(), "c", bytes_of(packed), 1000).data, nullptr);
  EXPECT_EQ(told.size(), 1u);
  EXPECT_EQ(entries().size(), 1u);
}

}  // namespace
}  // namespace edgewise
