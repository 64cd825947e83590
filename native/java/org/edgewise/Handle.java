package org.edgewise;

/**
 * What the library holds for an object, until it is closed. Uses of it, and closing, come one after
 * the other.
 */
abstract class Handle implements AutoCloseable {
  /** Held during each use. Objects that share state share it. */
  final Object lock;

  private final String name;
  private long address;

  Handle(String name, Object lock, long address) {
    this.name = name;
    this.lock = lock == null ? this : lock;
    this.address = address;
  }

  /** Only while {@link #lock} is held. */
  final long address() {
    if (address == 0) {
      throw new IllegalStateException(
          "[" + name + "] must be open when it is used; got a closed one; try closing it later");
    }
    return address;
  }

  /** Gives back the memory; waits for a run that is under way. Closing again does nothing. */
  @Override
  public final void close() {
    synchronized (lock) {
      if (address == 0) return;
      long closed = address;
      address = 0;
      free(closed);
    }
  }

  abstract void free(long closed);
}
