import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.edgewise.LoadOptions;
import org.edgewise.Method;
import org.edgewise.Program;
import org.edgewise.Session;
import org.edgewise.Tensor;

/**
 * Many uses at once, and one after the other. The argument is a program whose `forward` takes FLOAT32
 * [1, 3, 64, 64]; prints "same" or what differs for threads, and how much memory more there is, and
 * leaves without waiting for threads that still run.
 */
final class Use {
  private static final int THREADS = 4;
  private static final int RUNS = 20;

  public static void main(String[] arguments) throws Exception {
    String path = arguments[0];
    float[][] expected = new float[THREADS][];
    try (Program program = Program.load(path);
        Method method = program.method("forward")) {
      for (int i = 0; i < THREADS; i++) expected[i] = run(method, i);
    }
    // Each thread with a program of its own; of one program, with methods of their own; all of one
    // method.
    try (Program program = Program.load(path);
        Session session = program.newSession();
        Method method = session.method("forward")) {
      System.out.println("programs: " + together(expected, i -> own(path, i)));
      System.out.println("methods: " + together(expected, i -> own(program, i)));
      System.out.println("method: " + together(expected, i -> run(method, i)));
    }
    System.out.println("closing: " + closeWhileOthersRun(path));
    run(path, 10); // what is taken once
    long before = residentKilobytes();
    run(path, 60);
    System.out.println("grown: " + (residentKilobytes() - before));
    leaveOthersRunning(path);
  }

  /** The process ends while they run. */
  private static void leaveOthersRunning(String path) throws Exception {
    for (int i = 0; i < 2; i++) {
      Program program = Program.load(path);
      Method method = program.method("forward");
      Thread thread =
          new Thread(
              () -> {
                while (true) run(method, 0);
              });
      thread.setDaemon(true);
      thread.start();
    }
    Thread.sleep(50);
  }

  private interface Work {
    float[] of(int thread) throws Exception;
  }

  private static String together(float[][] expected, Work work) throws Exception {
    ExecutorService threads = Executors.newFixedThreadPool(THREADS);
    List<Future<Boolean>> all = new ArrayList<>();
    for (int i = 0; i < THREADS; i++) {
      int thread = i;
      Callable<Boolean> runs =
          () -> {
            boolean isSame = true;
            for (int run = 0; run < RUNS; run++) {
              isSame = isSame && Arrays.equals(expected[thread], work.of(thread));
            }
            return isSame;
          };
      all.add(threads.submit(runs));
    }
    String found = "same";
    for (int i = 0; i < THREADS; i++) if (!all.get(i).get()) found = "thread " + i + " differs";
    threads.shutdown();
    return found;
  }

  private static float[] run(Method method, int seed) {
    float[] pixels = new float[3 * 64 * 64];
    for (int i = 0; i < pixels.length; i++) pixels[i] = (float) Math.sin(i * (seed + 1));
    return ((Tensor) method.run(Tensor.of(pixels, 1, 3, 64, 64))[0]).floats();
  }

  private static float[] own(Program program, int seed) {
    try (Method method = program.method("forward")) {
      return run(method, seed);
    }
  }

  private static float[] own(String path, int seed) {
    try (Program program = Program.load(path, new LoadOptions().threads(1))) {
      return own(program, seed);
    }
  }

  /** Whoever comes too late is told so. */
  private static String closeWhileOthersRun(String path) throws Exception {
    int ran = 0;
    for (int round = 0; round < 5; round++) {
      Program program = Program.load(path);
      Method method = program.method("forward");
      ExecutorService threads = Executors.newFixedThreadPool(THREADS);
      List<Future<Integer>> all = new ArrayList<>();
      for (int i = 0; i < THREADS; i++) {
        int thread = i;
        Callable<Integer> runs =
            () -> {
              int count = 0;
              try {
                while (true) {
                  run(method, thread);
                  count++;
                }
              } catch (IllegalStateException e) {
                return count;
              }
            };
        all.add(threads.submit(runs));
      }
      Thread.sleep(20);
      program.close();
      method.close();
      for (Future<Integer> one : all) ran += one.get();
      threads.shutdown();
    }
    return ran > 0 ? "told" : "nobody ran";
  }

  private static void run(String path, int times) {
    for (int i = 0; i < times; i++) {
      try (Program program = Program.load(path);
          Method method = program.method("forward")) {
        run(method, i);
      }
    }
    System.gc(); // tensors' memory is the collector's
  }

  private static long residentKilobytes() throws IOException {
    for (String line : Files.readAllLines(Paths.get("/proc/self/status"))) {
      if (line.startsWith("VmRSS:")) return Long.parseLong(line.replaceAll("\\D", ""));
    }
    throw new IOException("VmRSS");
  }
}
