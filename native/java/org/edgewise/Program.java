package org.edgewise;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;

/**
 * A loaded `.pte` file.
 *
 * <pre>{@code
 * try (Program program = Program.load("model.pte");
 *     Method forward = program.method("forward")) {
 *   Tensor scores = (Tensor) forward.run(Tensor.of(pixels, 1, 3, 224, 224))[0];
 * }
 * }</pre>
 *
 * Several threads may use it at once. What it, its sessions and methods hold is given back by
 * `close()` alone, in any order: there is no finalizer.
 */
public final class Program extends Handle {
  private Program(long address) {
    super("Program", null, address);
  }

  /** Maps the file; it must not change while the program is in use. */
  public static Program load(String path) {
    return load(path, new LoadOptions());
  }

  public static Program load(String path, LoadOptions options) {
    byte[] name = Native.utf8("Program.load", path);
    return new Program(
        Native.loadFile(
            name, options.numbers(), options.dataFilesUtf8(), options.cacheDirUtf8()));
  }

  /** Copies the bytes of a file, from the buffer's position to its limit. */
  public static Program load(ByteBuffer bytes) {
    return load(bytes, new LoadOptions());
  }

  public static Program load(ByteBuffer bytes, LoadOptions options) {
    ByteBuffer given = bytes.duplicate();
    if (!given.isDirect()) {
      given = ByteBuffer.allocateDirect(bytes.remaining());
      given.put(bytes.duplicate());
      given.flip();
    }
    return new Program(
        Native.loadBytes(
            given,
            given.position(),
            given.remaining(),
            options.numbers(),
            options.dataFilesUtf8(),
            options.cacheDirUtf8()));
  }

  /** Of the library that was loaded, "0.1.0". */
  public static String version() {
    return Native.text(Native.version());
  }

  public List<String> methodNames() {
    synchronized (lock) {
      int count = Native.methodCount(address());
      List<String> names = new ArrayList<>(count);
      for (int i = 0; i < count; i++) names.add(Native.text(Native.methodName(address(), i)));
      return Collections.unmodifiableList(names);
    }
  }

  /** An instance of a method, with memory and state of its own. */
  public Method method(String name) {
    byte[] utf8 = Native.utf8("Program.method", name);
    synchronized (lock) {
      return new Method(null, Native.loadMethod(address(), utf8, 0));
    }
  }

  /** State, such as a cache, for methods to share. */
  public Session newSession() {
    synchronized (lock) {
      return new Session(this, Native.newSession(address()));
    }
  }

  @Override
  void free(long closed) {
    Native.freeProgram(closed);
  }
}
