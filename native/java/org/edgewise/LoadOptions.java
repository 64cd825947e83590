package org.edgewise;

/** How a program is loaded. Each call sets one option and returns the object. */
public final class LoadOptions {
  private int threads;
  private boolean minimalVerification;
  private boolean ownKernels = true;
  private String[] dataFiles = {};
  private long maxMemory;
  private String cacheDir;
  private long cacheBytes;

  /** For delegates; 0, the default: one per physical core, small cores of a phone among them. */
  public LoadOptions threads(int count) {
    threads = count;
    return this;
  }

  /** Skips the checks of a file that is trusted. A damaged file may then end the process. */
  public LoadOptions minimalVerification(boolean on) {
    minimalVerification = on;
    return this;
  }

  /** Whether backends may use kernels beside their library's; true by default. */
  public LoadOptions ownKernels(boolean on) {
    ownKernels = on;
    return this;
  }

  /** `.ptd` files with weights outside of the program. */
  public LoadOptions dataFiles(String... paths) {
    dataFiles = paths.clone();
    return this;
  }

  /** The most bytes that a method may plan for, checked before it allocates any; 0: no bound. */
  public LoadOptions maxMemory(long bytes) {
    maxMemory = bytes;
    return this;
  }

  /**
   * A folder in which packed weights are kept from one start to the next. It must be this user's
   * alone: of an app, a folder that does not exist yet below getCacheDir().
   */
  public LoadOptions cacheDir(String path) {
    cacheDir = path;
    return this;
  }

  /** The most bytes that may lie there; 0: 8 GiB, 1 GiB where addresses have 32 bits. */
  public LoadOptions cacheBytes(long bytes) {
    cacheBytes = bytes;
    return this;
  }

  long[] numbers() {
    if (maxMemory < 0 || cacheBytes < 0) {
      throw new IllegalArgumentException(
          "[LoadOptions] bytes must be 0 or more; got " + Math.min(maxMemory, cacheBytes));
    }
    return new long[] {
      threads, minimalVerification ? 1 : 0, ownKernels ? 0 : 1, maxMemory, cacheBytes
    };
  }

  byte[][] dataFilesUtf8() {
    byte[][] paths = new byte[dataFiles.length][];
    for (int i = 0; i < paths.length; i++) {
      paths[i] = Native.utf8("LoadOptions.dataFiles", dataFiles[i]);
    }
    return paths;
  }

  byte[] cacheDirUtf8() {
    return cacheDir == null ? null : Native.utf8("LoadOptions.cacheDir", cacheDir);
  }
}
