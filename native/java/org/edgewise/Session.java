package org.edgewise;

/** State that methods share. They run one after the other, whatever threads call them. */
public final class Session extends Handle {
  private final Program program;

  Session(Program program, long address) {
    super("Session", null, address);
    this.program = program;
  }

  /** A method that sees this session's state. */
  public Method method(String name) {
    byte[] utf8 = Native.utf8("Session.method", name);
    synchronized (program.lock) {
      synchronized (lock) {
        return new Method(lock, Native.loadMethod(program.address(), utf8, address()));
      }
    }
  }

  @Override
  void free(long closed) {
    Native.freeSession(closed);
  }
}
