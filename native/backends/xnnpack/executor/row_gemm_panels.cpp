#include "backends/xnnpack/executor/row_gemm_panels.h"

#ifdef EDGEWISE_HAS_ROW_GEMM_X86

#include <cstring>
#include <utility>

namespace edgewise::xnnpack {
namespace {

// Of a word: a weight is its nibble - 8, which in two's complement is the nibble with its highest
// bit turned over.
uint32_t flipped_bits(Nibbles nibbles) { return nibbles == Nibbles::kSigned ? 0x88888888 : 0; }

// Of a word of nibbles.
uint32_t pairs_of(uint32_t word) { return (word & 0x0f0f0f0f) + (word >> 4 & 0x0f0f0f0f); }

int32_t sum_of_bytes(uint32_t word) {
  word = (word & 0x00ff00ff) + (word >> 8 & 0x00ff00ff);
  return static_cast<int32_t>((word & 0xffff) + (word >> 16));
}

size_t nibble_bytes(size_t block) { return block * kRowGemmColumns / 2; }
size_t block_bytes(size_t block) {
  return nibble_bytes(block) + kRowGemmColumns * sizeof(uint16_t);
}

// Words whose nibbles are added in bytes, two and two: 8 times 30 are still one.
constexpr size_t kAddable = 8;

// Bytes 0, 2, 4 and 6.
uint32_t even_bytes(uint64_t bytes) {
  bytes &= 0x00ff00ff00ff00ff;
  bytes = (bytes | bytes >> 8) & 0x0000ffff0000ffff;
  return static_cast<uint32_t>(bytes | bytes >> 16);
}

struct Eight {
  uint32_t words[2];  // as they are packed; of nibbles the first
  int32_t sum;
};

Eight eight_nibbles(const std::byte* from, size_t bytes, uint32_t flipped) {
  uint32_t nibbles = 0x88888888;
  std::memcpy(&nibbles, from, bytes);
  return {.words = {nibbles ^ flipped, 0}, .sum = sum_of_bytes(pairs_of(nibbles)) - 8 * 8};
}

Eight eight_bytes(const std::byte* from, size_t count) {
  uint64_t bytes = 0;
  std::memcpy(&bytes, from, count);
  const uint32_t even = even_bytes(bytes), odd = even_bytes(bytes >> 8);
  // Plus 128, without a sign.
  return {.words = {even, odd},
          .sum = sum_of_bytes(even ^ 0x80808080) + sum_of_bytes(odd ^ 0x80808080) - 8 * 128};
}

size_t block_panel_bytes(const GraphValue& filter) {
  const size_t block = filter.block_size;
  return kBlocksHeader + filter.shape[1] / block * block_bytes(block);
}

// Loops over columns are not unrolled: they would be 5 kB.
void pack_blocks(const GraphValue& filter, const float* bias, size_t first, Nibbles nibbles,
                 float factor, std::byte* panel) {
  const uint32_t flipped = flipped_bits(nibbles);
  const size_t depth = filter.shape[1], block = filter.block_size, blocks = depth / block;
  const size_t columns = std::min(kRowGemmColumns, filter.shape[0] - first);
  const std::byte* from = filter.data.bytes.data() + first * depth / 2;
  const uint16_t* scales = filter.block_scales.data() + first * blocks;
  double sums[kRowGemmColumns] = {};
  std::byte* to = panel + kBlocksHeader;
  for (size_t i = 0; i < blocks; ++i) {
    int32_t block_sums[kRowGemmColumns] = {};
    uint32_t pairs[kRowGemmColumns] = {};
    for (size_t word = 0; word < block / kWord; ++word, from += sizeof(uint32_t)) {
      uint32_t words[kRowGemmColumns] = {};
#pragma GCC unroll 1
      for (size_t column = 0; column < columns; ++column) {
        std::memcpy(&words[column], from + column * depth / 2, sizeof(uint32_t));
      }
#pragma GCC unroll 1
      for (size_t column = 0; column < kRowGemmColumns; ++column) {
        pairs[column] += pairs_of(words[column]);
        words[column] ^= flipped;
      }
      std::memcpy(to, words, sizeof(words));
      to += sizeof(words);
      if ((word + 1) % kAddable != 0 && (word + 1) * kWord != block) continue;
#pragma GCC unroll 1
      for (size_t column = 0; column < kRowGemmColumns; ++column) {
        block_sums[column] += sum_of_bytes(std::exchange(pairs[column], 0));
      }
    }
    uint16_t of_block[kRowGemmColumns] = {};
#pragma GCC unroll 1
    for (size_t column = 0; column < columns; ++column) {
      of_block[column] = scales[column * blocks + i];
      const double scale = from_bfloat16(of_block[column]);
      sums[column] += scale * (block_sums[column] - 8 * static_cast<int32_t>(block));
    }
    std::memcpy(to, of_block, sizeof(of_block));
    to += sizeof(of_block);
  }
  float header[2 * kRowGemmColumns] = {};
  for (size_t column = 0; column < columns; ++column) {
    header[column] = static_cast<float>(factor * sums[column]);
    if (bias != nullptr) header[kRowGemmColumns + column] = bias[first + column];
  }
  std::memcpy(panel, header, sizeof(header));
}

size_t channel_panel_bytes(const GraphValue& filter) {
  return kChannelsHeader +
         divide_up(filter.shape[1], kWord) * kRowGemmColumns * bits_of(filter.type) * kWord / 8;
}

void pack_channels(const GraphValue& filter, const float* bias, size_t first, Nibbles nibbles,
                   std::byte* panel) {
  const uint32_t flipped = flipped_bits(nibbles);
  const size_t bits = bits_of(filter.type), bytes = filter.shape[1] * bits / 8;
  const size_t columns = std::min(kRowGemmColumns, filter.shape[0] - first);
  const std::byte* from = filter.data.bytes.data() + first * bytes;
  if (columns < kRowGemmColumns) std::memset(panel, 0, channel_panel_bytes(filter));
  int32_t sums[kRowGemmColumns] = {};
  std::byte* to = panel + kChannelsHeader;
  for (size_t at = 0; at < bytes; at += bits) {  // as many bytes as bits: eight weights
    const size_t count = std::min(bits, bytes - at);
#pragma GCC unroll 1
    for (size_t column = 0; column < columns; ++column) {
      const std::byte* weights = from + column * bytes + at;
      const Eight eight =
          bits == 4 ? eight_nibbles(weights, count, flipped) : eight_bytes(weights, count);
      sums[column] += eight.sum;
      std::memcpy(to + column * sizeof(uint32_t), &eight.words[0], sizeof(uint32_t));
      if (bits == 8) {
        std::memcpy(to + kWordOfBytes + column * sizeof(uint32_t), &eight.words[1],
                    sizeof(uint32_t));
      }
    }
    to += bits / 4 * kWordOfBytes;
  }
  pack_channels_header(filter, bias, first, sums, panel);
}

}  // namespace

bool fits_panels(const GraphValue& filter) {
  const size_t depth = filter.shape[1];
  switch (filter.type) {
    case DataType::kQbint4:
      return filter.block_size % kWord == 0 && filter.block_size <= kMostSummed;
    case DataType::kQcint4:
      // Odd columns would begin amid a byte.
      return depth % 2 == 0 && depth <= kMostSummed && filter.zero_point == 8;
    case DataType::kQcint8:
      return depth <= kMostSummed;
    default:
      return false;
  }
}

size_t panel_bytes(const GraphValue& filter) {
  return filter.type == DataType::kQbint4 ? block_panel_bytes(filter) : channel_panel_bytes(filter);
}

void pack_channels_header(const GraphValue& filter, const float* bias, size_t first,
                          const int32_t (&sums)[kRowGemmColumns], std::byte* panel) {
  const size_t columns = std::min(kRowGemmColumns, filter.shape[0] - first);
  float header[2 * kRowGemmColumns] = {};
  for (size_t column = 0; column < columns; ++column) {
    header[column] = filter.channel_scales[first + column];
    if (bias != nullptr) header[kRowGemmColumns + column] = bias[first + column];
  }
  std::memcpy(panel, sums, sizeof(sums));
  std::memcpy(panel + sizeof(sums), header, sizeof(header));
}

void pack_panel(const GraphValue& filter, const float* bias, size_t first, Nibbles nibbles,
                float factor, std::byte* panel) {
  if (filter.type == DataType::kQbint4) {
    pack_blocks(filter, bias, first, nibbles, factor, panel);
  } else {
    pack_channels(filter, bias, first, nibbles, panel);
  }
}

}  // namespace edgewise::xnnpack

#endif
