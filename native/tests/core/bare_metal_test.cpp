// What programs without an operating system have in place of a heap and printf.
#include <gtest/gtest.h>

#include <cfloat>
#include <climits>
#include <cstdio>
#include <cstring>
#include <random>
#include <utility>
#include <vector>

#include "platform/bare/arena.h"
#include "platform/bare/print.h"
#include "test_program.h"

namespace edgewise::test {
namespace {

using platform::bare::Arena;

std::string printed(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  std::string text = platform::bare::print(format, arguments);
  va_end(arguments);
  return text;
}

// Both printers' text of the same arguments.
#define EXPECT_PRINTS_AS_C(...)                             \
  do {                                                      \
    char expected[400];                                     \
    std::snprintf(expected, sizeof(expected), __VA_ARGS__); \
    EXPECT_EQ(printed(__VA_ARGS__), expected);              \
  } while (false)

TEST(BarePrint, WritesWhatTheCLibraryDoes) {
  EXPECT_PRINTS_AS_C("plain, 100 %%");
  EXPECT_PRINTS_AS_C("[%s] %.*s%c", "where", 3, "abcdef", 'x');
  EXPECT_PRINTS_AS_C("%d %d %d %d", 0, -1, INT_MAX, INT_MIN);
  EXPECT_PRINTS_AS_C("%lld %lld", LLONG_MAX, LLONG_MIN);
  EXPECT_PRINTS_AS_C("%u %llu %zu", UINT_MAX, ULLONG_MAX, sizeof(int));
  EXPECT_PRINTS_AS_C("%02x%02x %x", 0x7u, 0xabu, 0xdeadbeefu);
}

TEST(BarePrint, WritesNumbersAsTheCLibraryDoes) {
  for (const double number :
       {0.0,        -0.0,     1.0,       0.5,    -2.25,  10.0,        123456.0,
        1234567.0,  999999.5, 9999995.0, 0.1,    0.0001, 0.00001,     1.5e-7,
        3.14159265, 2e20,     1e100,     1e-100, 100.0,  0.000123456, 65504.0,
        DBL_MAX,    DBL_MIN,  5e-324,    1e22,   1.25e22}) {
    EXPECT_PRINTS_AS_C("%g", number);
  }
  EXPECT_PRINTS_AS_C("%g %g", HUGE_VAL, -HUGE_VAL);
  EXPECT_EQ(printed("%g", std::nan("")), "nan");
}

TEST(BarePrint, KeepsWhatItDoesNotKnow) { EXPECT_EQ(printed("a %e b", 1.0), "a %e b"); }

TEST(Arena, GivesAlignedBlocksThatDoNotOverlap) {
  alignas(64) static std::byte memory[64 * 1024];
  Arena arena(memory, sizeof(memory));
  std::mt19937 random(0);
  struct Held {
    unsigned char* data;
    size_t bytes;
    unsigned char mark;
  };
  std::vector<Held> held;
  for (int i = 0; i < 20'000; ++i) {
    if (held.empty() || random() % 2 != 0) {
      const size_t bytes = random() % 900, alignment = size_t{1} << random() % 7;
      auto* data = static_cast<unsigned char*>(arena.take(bytes, alignment));
      if (data == nullptr) continue;
      ASSERT_EQ(reinterpret_cast<uintptr_t>(data) % alignment, 0u);
      ASSERT_GE(data, reinterpret_cast<unsigned char*>(memory));
      ASSERT_LE(data + bytes, reinterpret_cast<unsigned char*>(memory) + sizeof(memory));
      const auto mark = static_cast<unsigned char>(i);
      std::memset(data, mark, bytes);
      held.push_back({data, bytes, mark});
    } else {
      std::swap(held[random() % held.size()], held.back());
      const Held one = held.back();
      for (size_t k = 0; k < one.bytes; ++k) ASSERT_EQ(one.data[k], one.mark);
      arena.give_back(one.data);
      held.pop_back();
    }
  }
  for (const Held& one : held) arena.give_back(one.data);
  EXPECT_EQ(arena.used(), 0u);
  EXPECT_LE(arena.peak(), sizeof(memory));
  // All of it is one block again.
  EXPECT_NE(arena.take(sizeof(memory) - 64, 8), nullptr);
}

TEST(Arena, SaysWhenThereIsNoRoom) {
  alignas(64) std::byte memory[1024];
  Arena arena(memory, sizeof(memory));
  EXPECT_EQ(arena.take(SIZE_MAX, 8), nullptr);
  EXPECT_EQ(arena.take(1025, 8), nullptr);
  EXPECT_NE(arena.take(0, 8), nullptr);
  EXPECT_EQ(arena.take(1020, 8), nullptr);  // beside what the two blocks are described with
  arena.give_back(nullptr);
  EXPECT_EQ(arena.count(), 1u);
}

// What a call takes and gives back is at the same place each time.
TEST(Arena, DoesNotGrowWithCalls) {
  alignas(64) std::byte memory[8192];
  Arena arena(memory, sizeof(memory));
  void* kept = arena.take(100, 8);
  size_t reached = 0;
  for (int call = 0; call < 100; ++call) {
    void* a = arena.take(500, 64);
    void* b = arena.take(30, 8);
    arena.give_back(a);
    void* c = arena.take(400, 8);
    arena.give_back(c);
    arena.give_back(b);
    if (call == 0) reached = arena.reached();
    ASSERT_EQ(arena.reached(), reached);
  }
  arena.give_back(kept);
}

TEST(LoadInPlace, ReadsTheBytesWhereTheyAre) {
  const Bytes file = make_file(add_file());
  std::vector<std::byte> room(file.size() + kReadPadding + 2 * kBufferAlignment);
  const size_t skip = -reinterpret_cast<uintptr_t>(room.data()) & (kBufferAlignment - 1);
  std::byte* begin = room.data() + skip;
  std::memcpy(begin, file.data(), file.size());
  auto program = Program::load_in_place({begin, file.size()}, {});
  ASSERT_TRUE(program.ok()) << program.status().message();
  EXPECT_TRUE((*program)->load_method("forward").ok());

  std::memmove(begin + 8, begin, file.size());
  program = Program::load_in_place({begin + 8, file.size()}, {});
  ASSERT_FALSE(program.ok());
  EXPECT_EQ(program.status().message(),
            "[load] bytes that are read in place must be aligned to 64; got an address 8 beyond "
            "that; try alignas, or load_bytes, which copies them");
}

}  // namespace
}  // namespace edgewise::test
