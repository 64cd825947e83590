// The runner's files. The runner is a program and not a library, so its source is here.
#include "tools/npy.cpp"
#include "platform/whole_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <numeric>

namespace edgewise::tools {
namespace {

std::string temporary(const char* name) {
  return ::testing::TempDir() + "/edgewise_npy_" + std::to_string(getpid()) + name;
}

void write_file(const std::string& path, const std::string& bytes) {
  const File file = open_file(path, "wb");
  ASSERT_NE(file, nullptr);
  ASSERT_EQ(std::fwrite(bytes.data(), 1, bytes.size(), file.get()), bytes.size());
}

// A version 1 file with this text.
std::string npy(const std::string& text, const std::string& data) {
  std::string bytes("\x93NUMPY\x01\x00", 8);
  bytes += static_cast<char>(text.size() & 0xff);
  bytes += static_cast<char>(text.size() >> 8);
  return bytes + text + data;
}

TEST(Npy, ReadsWhatItWrites) {
  const std::string path = temporary("round");
  for (const TypeRow& row : kTypes) {
    for (const std::vector<int64_t>& sizes :
         {std::vector<int64_t>{}, std::vector<int64_t>{0, 3}, std::vector<int64_t>{2, 3, 4}}) {
      std::vector<std::byte> data(24 * 8);
      for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<std::byte>(i);
      const Tensor tensor =
          *Tensor::make(row.type, sizes, {}, data.data(), data.size(), Dynamism::kStatic);
      ASSERT_TRUE(write_npy(path, tensor).ok());
      const Result<Array> array = read_npy(path);
      ASSERT_TRUE(array.ok()) << array.status().message();
      EXPECT_EQ(array.value().tensor.describe(), tensor.describe());
      EXPECT_TRUE(std::equal(array.value().bytes.begin(), array.value().bytes.end(), data.begin()));
    }
  }
  std::remove(path.c_str());
}

TEST(Npy, ReadsFortranOrder) {
  const std::string path = temporary("fortran");
  write_file(path, npy("{'descr': '|u1', 'fortran_order': True, 'shape': (2, 3), }\n", "adbecf"));
  const Result<Array> array = read_npy(path);
  ASSERT_TRUE(array.ok()) << array.status().message();
  EXPECT_EQ(array.value().tensor.strides()[0], 1);
  EXPECT_EQ(array.value().tensor.strides()[1], 2);
  std::remove(path.c_str());
}

TEST(Npy, RefusesDamage) {
  const std::string good = "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }\n";
  struct Case {
    std::string bytes;
    const char* message;
  };
  const bool has_64_bits = sizeof(size_t) == 8;
  const Case cases[] = {
      {"", "no .npy file"},
      {"not an npy file", "no .npy file"},
      {npy(good, "abc"), "truncated: 8 bytes expected"},
      {npy(good, "").substr(0, 20), "truncated"},
      {npy("{'descr': '>f4', 'fortran_order': False, 'shape': (2,), }", "abcdefgh"), "'>f4'"},
      {npy("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2,), }", ""), "structured"},
      {npy("{'descr': '<f4', 'shape': (2,), }", ""), "damaged"},
      {npy("{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,), }", ""),
       "damaged"},
      {npy("{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904, 4), }", ""),
       "too many elements"},
      {npy("{'descr': '<f4', 'fortran_order': False, 'shape': (1099511627775,), }", ""),
       has_64_bits ? "too large" : "too many elements"},
      {npy("{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999,), }", "x"),
       has_64_bits ? "truncated" : "too many elements"},
      {npy("{'descr': '<f4', 'fortran_order': False, 'shape': (99999999,), }", "x"), "truncated"},
      {npy("{'descr': '<f4'", ""), "damaged"},
  };
  const std::string path = temporary("bad");
  for (const Case& c : cases) {
    write_file(path, c.bytes);
    const Status status = read_npy(path).status();
    EXPECT_FALSE(status.ok()) << c.bytes;
    EXPECT_NE(status.message().find(c.message), std::string::npos)
        << c.message << ": " << status.message();
  }
  std::remove(path.c_str());
  EXPECT_EQ(read_npy(path).status().code(), Code::kNotFound);
}

}  // namespace
}  // namespace edgewise::tools
