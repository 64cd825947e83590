#include "sha256.h"

#include <algorithm>
#include <bit>
#include <cstring>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace edgewise {

namespace {

constexpr size_t kBlock = 64;
constexpr size_t kPart = size_t{16} << 20;  // that is read before pages are let go of

constexpr uint32_t kRounds[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

using State = std::array<uint32_t, 8>;
using Compress = void (*)(State& state, const std::byte* blocks, size_t count);

uint32_t load_big_endian(const std::byte* from) {
  uint32_t result = 0;
  for (size_t i = 0; i < 4; ++i) result = result << 8 | std::to_integer<uint32_t>(from[i]);
  return result;
}

void compress_portable(State& state, const std::byte* blocks, size_t count) {
  for (; count > 0; --count, blocks += kBlock) {
    uint32_t w[64];
    for (size_t i = 0; i < 16; ++i) w[i] = load_big_endian(blocks + 4 * i);
    for (size_t i = 16; i < 64; ++i) {
      const uint32_t a = w[i - 15], b = w[i - 2];
      w[i] = w[i - 16] + (std::rotr(a, 7) ^ std::rotr(a, 18) ^ a >> 3) + w[i - 7] +
             (std::rotr(b, 17) ^ std::rotr(b, 19) ^ b >> 10);
    }
    auto [a, b, c, d, e, f, g, h] = state;
    for (size_t i = 0; i < 64; ++i) {
      const uint32_t one = h + (std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25)) +
                           ((e & f) ^ (~e & g)) + kRounds[i] + w[i];
      const uint32_t two =
          (std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
      h = g, g = f, f = e, e = d + one, d = c, c = b, b = a, a = one + two;
    }
    const State sum = {a, b, c, d, e, f, g, h};
    for (size_t i = 0; i < state.size(); ++i) state[i] += sum[i];
  }
}

#if defined(__x86_64__)

bool has_sha_instructions() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0 || (b & (1u << 29)) == 0) return false;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_SSE4_1) != 0;
}

__attribute__((target("sha,sse4.1"))) void compress_sha(State& state, const std::byte* blocks,
                                                        size_t count) {
  const __m128i swap = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
  // The instructions keep a, b, e, f in one register and c, d, g, h in another.
  const __m128i low = _mm_loadu_si128(reinterpret_cast<const __m128i*>(state.data()));
  const __m128i high = _mm_loadu_si128(reinterpret_cast<const __m128i*>(state.data() + 4));
  const __m128i badc = _mm_shuffle_epi32(low, 0xb1), hgfe = _mm_shuffle_epi32(high, 0x1b);
  __m128i abef = _mm_alignr_epi8(badc, hgfe, 8);
  __m128i cdgh = _mm_blend_epi16(hgfe, badc, 0xf0);
  for (; count > 0; --count, blocks += kBlock) {
    const __m128i abef_before = abef, cdgh_before = cdgh;
    __m128i w[4];
    for (size_t i = 0; i < 4; ++i) {
      w[i] = _mm_shuffle_epi8(_mm_loadu_si128(reinterpret_cast<const __m128i*>(blocks + 16 * i)),
                              swap);
    }
#pragma GCC unroll 16
    for (size_t i = 0; i < 16; ++i) {
      const __m128i now = w[i % 4];
      const __m128i sum =
          _mm_add_epi32(now, _mm_loadu_si128(reinterpret_cast<const __m128i*>(kRounds + 4 * i)));
      cdgh = _mm_sha256rnds2_epu32(cdgh, abef, sum);
      abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(sum, 0x0e));
      if (i >= 12) continue;
      // The four words that come sixteen after these.
      const __m128i next = w[(i + 1) % 4], last = w[(i + 3) % 4];
      const __m128i between = _mm_alignr_epi8(last, w[(i + 2) % 4], 4);
      w[i % 4] =
          _mm_sha256msg2_epu32(_mm_add_epi32(_mm_sha256msg1_epu32(now, next), between), last);
    }
    abef = _mm_add_epi32(abef, abef_before);
    cdgh = _mm_add_epi32(cdgh, cdgh_before);
  }
  const __m128i feba = _mm_shuffle_epi32(abef, 0x1b), dchg = _mm_shuffle_epi32(cdgh, 0xb1);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(state.data()), _mm_blend_epi16(feba, dchg, 0xf0));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(state.data() + 4), _mm_alignr_epi8(dchg, feba, 8));
}

#endif

Digest digest(std::span<const std::byte> bytes, Compress compress,
              const std::function<void(std::span<const std::byte>)>& release) {
  State state = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  const size_t whole = bytes.size() / kBlock, rest = bytes.size() % kBlock;
  for (size_t at = 0; at < whole * kBlock; at += kPart) {
    const auto part = bytes.subspan(at, std::min(kPart, whole * kBlock - at));
    compress(state, part.data(), part.size() / kBlock);
    if (release) release(part);
  }
  // What is left, a bit, zeros, and the number of bits.
  std::byte end[2 * kBlock] = {};
  if (rest != 0) std::memcpy(end, bytes.data() + whole * kBlock, rest);
  end[rest] = std::byte{0x80};
  const size_t blocks = rest < kBlock - 8 ? 1 : 2;
  const uint64_t bits = uint64_t{bytes.size()} * 8;
  for (size_t i = 0; i < 8; ++i) {
    end[blocks * kBlock - 1 - i] = static_cast<std::byte>(bits >> (8 * i) & 0xff);
  }
  compress(state, end, blocks);
  Digest result;
  for (size_t i = 0; i < result.size(); ++i) {
    result[i] = static_cast<uint8_t>(state[i / 4] >> (24 - 8 * (i % 4)));
  }
  return result;
}

}  // namespace

Digest sha256(std::span<const std::byte> bytes,
              const std::function<void(std::span<const std::byte>)>& release) {
#if defined(__x86_64__)
  static const bool is_fast = has_sha_instructions();
  if (is_fast) return digest(bytes, compress_sha, release);
#endif
  return digest(bytes, compress_portable, release);
}

Digest sha256_portable(std::span<const std::byte> bytes) {
  return digest(bytes, compress_portable, {});
}

std::string to_hex(std::span<const uint8_t> bytes) {
  std::string result;
  for (const uint8_t byte : bytes) {
    result += "0123456789abcdef"[byte >> 4];
    result += "0123456789abcdef"[byte & 15];
  }
  return result;
}

}  // namespace edgewise
