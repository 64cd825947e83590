package org.edgewise;

/** Element types; the numbers are PyTorch's, and those of edgewise.h. */
public enum Type {
  UINT8(0, 1),
  INT8(1, 1),
  INT16(2, 2),
  INT32(3, 4),
  INT64(4, 8),
  FLOAT16(5, 2),
  FLOAT32(6, 4),
  FLOAT64(7, 8),
  BOOL(11, 1),
  QINT8(12, 1),
  QUINT8(13, 1),
  QINT32(14, 4),
  BFLOAT16(15, 2),
  UINT16(27, 2),
  UINT32(28, 4),
  UINT64(29, 8);

  final int number;
  final int size;

  Type(int number, int size) {
    this.number = number;
    this.size = size;
  }

  /** Bytes of one element. */
  public int size() {
    return size;
  }

  static Type of(long number) {
    for (Type type : values()) {
      if (type.number == number) return type;
    }
    throw new EdgewiseException(
        EdgewiseException.Code.UNSUPPORTED,
        "[Type] elements must be of a type that this class knows; got number " + number);
  }
}
