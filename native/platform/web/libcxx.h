// What this project uses of C++20 that a libc++ before 15 (Debian 12's Emscripten has 13) does not
// have: range algorithms and bit_cast. Included before everything else; see
// cmake/edgewise_options.cmake.
#pragma once

#include <version>

#if defined(_LIBCPP_VERSION) && _LIBCPP_VERSION < 15000

#include <algorithm>
#include <bit>
#include <functional>
#include <iterator>
#include <utility>

#ifndef __cpp_lib_bit_cast
namespace std {
template <class To, class From>
constexpr To bit_cast(const From& from) noexcept {
  return __builtin_bit_cast(To, from);
}
}  // namespace std
#endif

namespace std::ranges {

// Of contiguous ranges and containers; `of` is applied to an element before it is looked at.
#define EDGEWISE_TEST(name)                                                           \
  template <class R, class Test, class Of = identity>                                 \
  constexpr bool name(R&& range, Test test, Of of = {}) {                             \
    return std::name(std::begin(range), std::end(range), [&](const auto& x) -> bool { \
      return std::invoke(test, std::invoke(of, x));                                   \
    });                                                                               \
  }
EDGEWISE_TEST(any_of)
EDGEWISE_TEST(all_of)
EDGEWISE_TEST(none_of)
#undef EDGEWISE_TEST

template <class R, class Test, class Of = identity>
constexpr auto count_if(R&& range, Test test, Of of = {}) {
  return std::count_if(std::begin(range), std::end(range),
                       [&](const auto& x) { return std::invoke(test, std::invoke(of, x)); });
}

template <class R, class T, class Of = identity>
constexpr auto count(R&& range, const T& value, Of of = {}) {
  return ranges::count_if(
      range, [&](const auto& x) { return x == value; }, of);
}

template <class R, class Test, class Of = identity>
constexpr auto find_if(R&& range, Test test, Of of = {}) {
  return std::find_if(std::begin(range), std::end(range),
                      [&](const auto& x) { return std::invoke(test, std::invoke(of, x)); });
}

template <class R, class T, class Of = identity>
constexpr auto find(R&& range, const T& value, Of of = {}) {
  return ranges::find_if(
      range, [&](const auto& x) { return x == value; }, of);
}

template <class A, class B>
constexpr bool equal(A&& a, B&& b) {
  return std::equal(std::begin(a), std::end(a), std::begin(b), std::end(b));
}

template <class A, class B, class Same, class OfA = identity, class OfB = identity>
constexpr bool equal(A&& a, B&& b, Same same, OfA of_a = {}, OfB of_b = {}) {
  return std::equal(std::begin(a), std::end(a), std::begin(b), std::end(b),
                    [&](const auto& x, const auto& y) -> bool {
                      return std::invoke(same, std::invoke(of_a, x), std::invoke(of_b, y));
                    });
}

template <class R, class Out>
constexpr auto copy(R&& range, Out out) {
  return std::copy(std::begin(range), std::end(range), out);
}

template <class R, class Out, class Test>
constexpr auto copy_if(R&& range, Out out, Test test) {
  return std::copy_if(std::begin(range), std::end(range), out, std::ref(test));
}

template <class R, class T>
constexpr void fill(R&& range, const T& value) {
  std::fill(std::begin(range), std::end(range), value);
}

template <class R, class Make>
constexpr void generate(R&& range, Make make) {
  std::generate(std::begin(range), std::end(range), std::ref(make));
}

template <class R, class Test, class T>
constexpr void replace_if(R&& range, Test test, const T& value) {
  std::replace_if(std::begin(range), std::end(range), std::ref(test), value);
}

template <class I>
constexpr void rotate(I first, I middle, I last) {
  std::rotate(first, middle, last);
}

#define EDGEWISE_ORDER(name)                                                                 \
  template <class R, class Less = less, class Of = identity>                                 \
  constexpr auto name(R&& range, Less before = {}, Of of = {}) {                             \
    return std::name(std::begin(range), std::end(range), [&](const auto& a, const auto& b) { \
      return std::invoke(before, std::invoke(of, a), std::invoke(of, b));                    \
    });                                                                                      \
  }
EDGEWISE_ORDER(sort)
EDGEWISE_ORDER(stable_sort)
EDGEWISE_ORDER(max_element)
#undef EDGEWISE_ORDER

template <class R, class T, class Less = less, class Of = identity>
constexpr auto lower_bound(R&& range, const T& value, Less before = {}, Of of = {}) {
  return std::lower_bound(std::begin(range), std::end(range), value,
                          [&](const auto& x, const T& y) -> bool {
                            return std::invoke(before, std::invoke(of, x), y);
                          });
}

template <class R, class T, class Less = less, class Of = identity>
constexpr bool binary_search(R&& range, const T& value, Less before = {}, Of of = {}) {
  const auto at = ranges::lower_bound(range, value, before, of);
  return at != std::end(range) && !std::invoke(before, value, std::invoke(of, *at));
}

}  // namespace std::ranges

#endif
