package org.edgewise;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;

/**
 * The functions of libedgewise_jni. Text is UTF-8 in both directions. They check what points into
 * Java's memory, not handles: who calls holds the lock of a handle that is open.
 */
final class Native {
  static {
    System.loadLibrary("edgewise_jni");
  }

  private Native() {}

  static byte[] utf8(String what, String text) {
    if (text == null) throw new NullPointerException("[" + what + "] must not be null");
    if (text.indexOf('\0') >= 0) {
      throw new IllegalArgumentException(
          "[" + what + "] must have no character 0; got one at " + text.indexOf('\0'));
    }
    return text.getBytes(StandardCharsets.UTF_8);
  }

  static String text(byte[] utf8) {
    return new String(utf8, StandardCharsets.UTF_8);
  }

  static native byte[] version();

  // options: threads, minimal verification, no own kernels, most memory, bytes of the cache.
  static native long loadFile(byte[] path, long[] options, byte[][] dataFiles, byte[] cacheDir);

  static native long loadBytes(
      ByteBuffer bytes, int offset, int size, long[] options, byte[][] dataFiles, byte[] cacheDir);

  static native void freeProgram(long program);

  static native int methodCount(long program);

  static native byte[] methodName(long program, int index);

  static native long newSession(long program);

  static native void freeSession(long session);

  static native long loadMethod(long program, byte[] name, long session);

  static native void freeMethod(long method);

  static native int inputCount(long method);

  static native int outputCount(long method);

  /** What {@link ValueInfo} reads. */
  static native long[] inputInfo(long method, int index);

  static native long[] outputInfo(long method, int index);

  /** The memory must stay as it is until {@link #execute} returns. */
  static native void setTensor(
      long method, int index, int type, long[] shape, byte[] dimOrder, ByteBuffer data);

  static native void setInteger(long method, int index, long value);

  static native void setNumber(long method, int index, double value);

  static native void setBoolean(long method, int index, boolean value);

  static native void setString(long method, int index, byte[] value);

  static native void setNone(long method, int index);

  static native void execute(long method);

  /** The same numbers as of {@link #outputInfo}, of the run. */
  static native long[] output(long method, int index);

  static native byte[] outputString(long method, int index);

  /** Rows last, whatever order the method has. */
  static native void copyOutput(long method, int index, ByteBuffer into);

  static native void reset(long method);
}
