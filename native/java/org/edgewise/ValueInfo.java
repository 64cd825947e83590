package org.edgewise;

import java.util.Arrays;

/** What a method says of one of its inputs or outputs. */
public final class ValueInfo {
  /** The numbers are those of edgewise.h, in order. */
  public enum Kind {
    NONE,
    TENSOR,
    INTEGER,
    NUMBER,
    BOOLEAN,
    STRING,
    LIST
  }

  /** Whether a tensor's shape may change from run to run; the numbers are those of edgewise.h. */
  public enum Dynamism {
    /** The shape never changes. */
    STATIC,
    /** Any shape up to the given one. */
    DYNAMIC_BOUND,
    /** Any shape of the rank. */
    DYNAMIC_UNBOUND
  }

  private final long[] numbers;

  /** numbers: kind, type, dynamism, bytes, integer, bits of the number, sizes. */
  ValueInfo(long[] numbers) {
    this.numbers = numbers;
  }

  public Kind kind() {
    return Kind.values()[(int) numbers[0]];
  }

  /** Of a tensor's elements; null for other kinds. */
  public Type type() {
    return kind() == Kind.TENSOR ? Type.of(numbers[1]) : null;
  }

  /** Of a tensor; null for other kinds. */
  public Dynamism dynamism() {
    return kind() == Kind.TENSOR ? Dynamism.values()[(int) numbers[2]] : null;
  }

  /** Sizes of a tensor, the largest ones where they may change; null for other kinds. */
  public long[] shape() {
    return kind() == Kind.TENSOR ? Arrays.copyOfRange(numbers, 6, numbers.length) : null;
  }

  /** Bytes of a tensor of this shape. */
  public long bytes() {
    return numbers[3];
  }

  long integer() {
    return numbers[4];
  }

  double number() {
    return Double.longBitsToDouble(numbers[5]);
  }

  /** "FLOAT32 [1, 3, 224, 224]", or the kind. */
  @Override
  public String toString() {
    return kind() == Kind.TENSOR ? type() + " " + Arrays.toString(shape()) : kind().toString();
  }
}
