// What libFuzzer calls, and a mutator that knows what FlatBuffers are made of: aligned words that
// are offsets, lengths, counts and small numbers.
#include <cstdint>
#include <cstring>
#include <random>

#include "target.h"

extern "C" {
size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  edgewise::fuzz::run_one(std::as_bytes(std::span(data, size)));
  return 0;
}
}

namespace {

template <typename T>
T read(const uint8_t* at) {
  T value;
  std::memcpy(&value, at, sizeof(value));
  return value;
}
template <typename T>
void write(uint8_t* at, T value) {
  std::memcpy(at, &value, sizeof(value));
}

template <typename T>
void change_word(uint8_t* data, size_t size, std::minstd_rand& random) {
  if (size < sizeof(T)) return;
  const size_t words = size / sizeof(T);
  uint8_t* const at = data + random() % words * sizeof(T);
  const T value = read<T>(at);
  switch (random() % 8) {
    case 0:  // a neighbour, of an offset or an index
      write<T>(at, static_cast<T>(value + (random() % 2 ? 1 : -1) * (1 << random() % 4)));
      break;
    case 1:
      write<T>(at, static_cast<T>(random() % 16));
      break;
    case 2:
      write<T>(at, static_cast<T>(T{1} << random() % (8 * sizeof(T))));
      break;
    case 3:
      write<T>(at, static_cast<T>(-static_cast<int64_t>(random() % 16)));
      break;
    case 4:  // what stands elsewhere: a union's other type, another table's field
      write<T>(at, read<T>(data + random() % words * sizeof(T)));
      break;
    case 5:  // to a place in the file
      write<T>(at, static_cast<T>(random() % size));
      break;
    case 6:
      write<T>(at, static_cast<T>(size));
      break;
    default: {  // two change places
      uint8_t* const other = data + random() % words * sizeof(T);
      write<T>(at, read<T>(other));
      write<T>(other, value);
    }
  }
}

}  // namespace

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned seed) {
  std::minstd_rand random(seed);
  if (random() % 4 == 0) return LLVMFuzzerMutate(data, size, max_size);
  for (unsigned changes = 1 + random() % 3; changes > 0; --changes) {
    switch (random() % 4) {
      case 0:
        change_word<uint8_t>(data, size, random);
        break;
      case 1:
        change_word<uint16_t>(data, size, random);
        break;
      case 2:
        change_word<uint64_t>(data, size, random);
        break;
      default:
        change_word<uint32_t>(data, size, random);
    }
  }
  return size;
}
