// The part of printf that messages use. A header of its own so that this machine's tests compare it
// with the C library's.
#pragma once

#include <cmath>
#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

namespace edgewise::platform::bare {

inline void append_integer(std::string& text, uint64_t number, unsigned base, size_t width) {
  char digits[24];
  size_t count = 0;
  do {
    digits[count++] = "0123456789abcdef"[number % base];
    number /= base;
  } while (number != 0);
  while (count < width && count < sizeof(digits)) digits[count++] = '0';
  while (count != 0) text += digits[--count];
}

// As %g: six significant digits, without zeros at the end.
inline void append_number(std::string& text, double number) {
  if (std::signbit(number)) text += '-';
  if (std::isnan(number) || std::isinf(number)) {
    text += std::isnan(number) ? "nan" : "inf";
    return;
  }
  const double size = std::fabs(number);
  int exponent = 0;  // of the first digit
  if (size != 0) {
    double rest = size;
    while (rest >= 10) rest /= 10, ++exponent;
    while (rest < 1) rest *= 10, --exponent;
  }
  // Scaled at once, by a power that is exact for what is not very large or small: errors of the
  // steps above would add up.
  double power = 1;
  for (int i = 5; i < exponent; ++i) power *= 10;
  double scaled = size;
  for (int i = exponent; i < 5; ++i) {
    power *= 10;
    if (power < 1e200) continue;
    scaled *= power;  // of the smallest numbers, whose power is none of double's
    power = 1;
  }
  auto digits = static_cast<uint64_t>(std::llround(exponent > 5 ? scaled / power : scaled * power));
  if (digits >= 1'000'000) digits /= 10, ++exponent;
  std::string all = std::to_string(digits);  // six of them, or "0"
  all.erase(all.find_last_not_of('0') + 1);
  if (all.empty()) all = "0";
  const bool is_scientific = exponent < -4 || exponent >= 6;
  const int before = is_scientific ? 1 : exponent + 1;  // digits before the point
  if (before <= 0) {
    text.append("0.").append(static_cast<size_t>(-before), '0').append(all);
  } else if (static_cast<size_t>(before) >= all.size()) {
    text.append(all).append(static_cast<size_t>(before) - all.size(), '0');
  } else {
    text.append(all, 0, static_cast<size_t>(before)).append(".");
    text.append(all, static_cast<size_t>(before));
  }
  if (!is_scientific) return;
  text += exponent < 0 ? "e-" : "e+";
  append_integer(text, static_cast<uint64_t>(exponent < 0 ? -exponent : exponent), 10, 2);
}

// What `format` makes of its arguments; what is not known is kept as it is.
inline std::string print(const char* format, va_list arguments) {
  std::string text;
  for (const char* at = format; *at != '\0'; ++at) {
    if (*at != '%') {
      text += *at;
      continue;
    }
    const char* start = at++;
    size_t width = 0;
    int precision = -1;
    while (*at >= '0' && *at <= '9') width = width * 10 + static_cast<size_t>(*at++ - '0');
    if (at[0] == '.' && at[1] == '*') {
      precision = va_arg(arguments, int);
      at += 2;
    }
    int longs = 0;
    bool is_size = false;
    for (; *at == 'l' || *at == 'z'; ++at) *at == 'z' ? is_size = true : ++longs != 0;
    switch (*at) {
      case '%':
        text += '%';
        break;
      case 'c':
        text += static_cast<char>(va_arg(arguments, int));
        break;
      case 's': {
        const char* item = va_arg(arguments, const char*);
        const size_t most = precision < 0 ? SIZE_MAX : static_cast<size_t>(precision);
        for (size_t i = 0; i < most && item[i] != '\0'; ++i) text += item[i];
        break;
      }
      case 'd': {
        const int64_t number = longs > 1    ? va_arg(arguments, long long)
                               : longs == 1 ? va_arg(arguments, long)
                                            : va_arg(arguments, int);
        if (number < 0) text += '-';
        append_integer(text, number < 0 ? -static_cast<uint64_t>(number) : number, 10, width);
        break;
      }
      case 'u':
      case 'x': {
        const uint64_t number = is_size      ? va_arg(arguments, size_t)
                                : longs > 1  ? va_arg(arguments, unsigned long long)
                                : longs == 1 ? va_arg(arguments, unsigned long)
                                             : va_arg(arguments, unsigned);
        append_integer(text, number, *at == 'x' ? 16 : 10, width);
        break;
      }
      case 'g':
        append_number(text, va_arg(arguments, double));
        break;
      default:  // a mistake in the program: nothing is read that may not be there
        return text.append(start);
    }
  }
  return text;
}

}  // namespace edgewise::platform::bare
