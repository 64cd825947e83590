package org.edgewise;

/** Numbers of 16 bits, which Java has no type for. */
final class Half {
  private Half() {}

  /** IEEE 754 binary16: 1 bit of sign, 5 of exponent, 10 of fraction. */
  static float toFloat(short half) {
    int sign = (half & 0x8000) << 16;
    int exponent = (half >> 10) & 0x1f;
    int fraction = half & 0x3ff;
    if (exponent == 0) {
      float small = fraction * 0x1p-24f; // zero, and numbers without the leading 1
      return sign == 0 ? small : -small;
    }
    if (exponent == 0x1f) return Float.intBitsToFloat(sign | 0x7f800000 | fraction << 13);
    return Float.intBitsToFloat(sign | (exponent + 112) << 23 | fraction << 13);
  }
}
