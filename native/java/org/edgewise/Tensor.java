package org.edgewise;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.Arrays;

/**
 * Numbers of one type, densely in memory outside of Java's heap, rows last. What makes one of an
 * array copies it; what makes one of a direct buffer does not.
 */
public final class Tensor {
  private static final int MAX_RANK = 16;

  final Type type;
  final long[] shape;
  /** Dimensions from outermost to innermost; null: rows last. */
  final byte[] dimOrder;
  /** All of it, from 0 to its limit; never handed out itself, since its limit could be moved. */
  final ByteBuffer bytes;

  /** The arguments are this object's from now on. */
  Tensor(Type type, long[] shape, byte[] dimOrder, ByteBuffer bytes) {
    this.type = type;
    this.shape = shape;
    this.dimOrder = dimOrder;
    this.bytes = bytes.order(ByteOrder.nativeOrder());
  }

  // ---- makers

  public static Tensor of(float[] values, long... shape) {
    Tensor made = sized(Type.FLOAT32, values.length, shape);
    made.bytes.asFloatBuffer().put(values);
    return made;
  }

  public static Tensor of(double[] values, long... shape) {
    Tensor made = sized(Type.FLOAT64, values.length, shape);
    made.bytes.asDoubleBuffer().put(values);
    return made;
  }

  public static Tensor of(byte[] values, long... shape) {
    return ofBytes(Type.INT8, values, shape);
  }

  /** Of bytes that stand for 0 to 255. */
  public static Tensor ofUnsigned(byte[] values, long... shape) {
    return ofBytes(Type.UINT8, values, shape);
  }

  public static Tensor of(short[] values, long... shape) {
    Tensor made = sized(Type.INT16, values.length, shape);
    made.bytes.asShortBuffer().put(values);
    return made;
  }

  public static Tensor of(int[] values, long... shape) {
    Tensor made = sized(Type.INT32, values.length, shape);
    made.bytes.asIntBuffer().put(values);
    return made;
  }

  public static Tensor of(long[] values, long... shape) {
    Tensor made = sized(Type.INT64, values.length, shape);
    made.bytes.asLongBuffer().put(values);
    return made;
  }

  public static Tensor of(boolean[] values, long... shape) {
    Tensor made = sized(Type.BOOL, values.length, shape);
    for (int i = 0; i < values.length; i++) made.bytes.put(i, (byte) (values[i] ? 1 : 0));
    return made;
  }

  public static Tensor zeros(Type type, long... shape) {
    long[] sizes = shape.clone();
    return new Tensor(type, sizes, null, ByteBuffer.allocateDirect(byteCount(type, sizes)));
  }

  /**
   * Of any type, in the memory of a direct buffer, from its position to its limit: runs read it
   * there. Its numbers are in the order of ByteOrder.nativeOrder().
   */
  public static Tensor wrap(Type type, ByteBuffer data, long... shape) {
    long[] sizes = shape.clone();
    if (!data.isDirect()) {
      throw new IllegalArgumentException(
          "[Tensor.wrap] data must be a direct buffer; got one on Java's heap; try"
              + " ByteBuffer.allocateDirect");
    }
    int expected = byteCount(type, sizes);
    if (data.remaining() != expected) {
      throw new IllegalArgumentException(
          "[Tensor.wrap] data of " + type + " " + Arrays.toString(sizes) + " must have " + expected
              + " bytes from position to limit; got " + data.remaining());
    }
    return new Tensor(type, sizes, null, data.slice());
  }

  /**
   * The same memory as of an image whose channels lie beside each other (NHWC), which is how
   * cameras and bitmaps have them. The shape stays the one of NCHW.
   */
  public Tensor asChannelsLast() {
    if (shape.length != 4 || dimOrder != null) {
      throw new IllegalArgumentException(
          "[Tensor.asChannelsLast] the tensor must have 4 dimensions, rows last; got " + this);
    }
    return new Tensor(type, shape, new byte[] {0, 2, 3, 1}, bytes);
  }

  // ---- what is in it

  public Type type() {
    return type;
  }

  public long[] shape() {
    return shape.clone();
  }

  /** How many numbers there are. */
  public int size() {
    return bytes.limit() / type.size;
  }

  /** The memory itself, in native order. */
  public ByteBuffer data() {
    return bytes.duplicate().order(ByteOrder.nativeOrder());
  }

  /** A copy, of FLOAT32, and of FLOAT16 and BFLOAT16, which it makes floats of. */
  public float[] floats() {
    float[] values = new float[size()];
    if (type == Type.FLOAT32) {
      data().asFloatBuffer().get(values);
    } else if (type == Type.FLOAT16) {
      for (int i = 0; i < values.length; i++) values[i] = Half.toFloat(bytes.getShort(2 * i));
    } else {
      require("floats", Type.BFLOAT16);
      for (int i = 0; i < values.length; i++) {
        values[i] = Float.intBitsToFloat(bytes.getShort(2 * i) << 16);
      }
    }
    return values;
  }

  public double[] doubles() {
    require("doubles", Type.FLOAT64);
    double[] values = new double[size()];
    data().asDoubleBuffer().get(values);
    return values;
  }

  /** Of types with one byte an element; unsigned ones as they are. */
  public byte[] bytes() {
    require("bytes", Type.INT8, Type.UINT8, Type.QINT8, Type.QUINT8, Type.BOOL);
    byte[] values = new byte[size()];
    data().get(values);
    return values;
  }

  public short[] shorts() {
    require("shorts", Type.INT16, Type.UINT16);
    short[] values = new short[size()];
    data().asShortBuffer().get(values);
    return values;
  }

  public int[] ints() {
    require("ints", Type.INT32, Type.UINT32, Type.QINT32);
    int[] values = new int[size()];
    data().asIntBuffer().get(values);
    return values;
  }

  public long[] longs() {
    require("longs", Type.INT64, Type.UINT64);
    long[] values = new long[size()];
    data().asLongBuffer().get(values);
    return values;
  }

  public boolean[] booleans() {
    require("booleans", Type.BOOL);
    boolean[] values = new boolean[size()];
    for (int i = 0; i < values.length; i++) values[i] = bytes.get(i) != 0;
    return values;
  }

  /** "FLOAT32 [1, 3, 224, 224]". */
  @Override
  public String toString() {
    return type + " " + Arrays.toString(shape);
  }

  // ---- checks

  private static Tensor ofBytes(Type type, byte[] values, long[] shape) {
    Tensor made = sized(type, values.length, shape);
    made.data().put(values);
    return made;
  }

  private static Tensor sized(Type type, int count, long[] shape) {
    long[] sizes = shape.clone();
    int expected = byteCount(type, sizes) / type.size;
    if (count != expected) {
      throw new IllegalArgumentException(
          "[Tensor.of] shape " + Arrays.toString(sizes) + " has " + expected + " elements; got "
              + count + " values");
    }
    return new Tensor(type, sizes, null, ByteBuffer.allocateDirect(expected * type.size));
  }

  private static int byteCount(Type type, long[] sizes) {
    if (sizes.length > MAX_RANK) {
      throw new IllegalArgumentException(
          "[Tensor] a tensor has at most " + MAX_RANK + " dimensions; got " + sizes.length);
    }
    boolean isEmpty = false;
    for (long size : sizes) {
      if (size < 0) {
        throw new IllegalArgumentException(
            "[Tensor] sizes must be 0 or more; got " + Arrays.toString(sizes));
      }
      isEmpty = isEmpty || size == 0;
    }
    long bytes = type.size;
    for (long size : sizes) {
      if (isEmpty) break;
      if (size > Integer.MAX_VALUE / bytes) {
        throw new IllegalArgumentException(
            "[Tensor] a tensor in Java has at most " + Integer.MAX_VALUE + " bytes; got " + type
                + " " + Arrays.toString(sizes));
      }
      bytes *= size;
    }
    return isEmpty ? 0 : (int) bytes;
  }

  private void require(String reader, Type... types) {
    for (Type one : types) {
      if (type == one) return;
    }
    throw new IllegalArgumentException(
        "[Tensor." + reader + "] the tensor must be of " + Arrays.toString(types) + "; got " + this
            + "; try data()");
  }
}
