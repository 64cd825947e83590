import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.LinkedHashMap;
import java.util.Map;
import org.edgewise.EdgewiseException;
import org.edgewise.LoadOptions;
import org.edgewise.Method;
import org.edgewise.Program;
import org.edgewise.Session;
import org.edgewise.Tensor;
import org.edgewise.Type;

/**
 * What must be refused, and by what: prints "name: exception: message" for each case. Arguments: a
 * program whose `forward` takes FLOAT32 [2, 3], and a folder to write to.
 */
final class Refusals {
  private interface Case {
    void run() throws Exception;
  }

  private static final Map<String, Case> CASES = new LinkedHashMap<>();

  public static void main(String[] arguments) throws Exception {
    String path = arguments[0];
    Path folder = Paths.get(arguments[1]);
    byte[] whole = Files.readAllBytes(Paths.get(path));
    Program open = Program.load(path);
    Method method = open.method("forward");
    Program closed = Program.load(path);
    Session session = closed.newSession();
    Method orphan = closed.method("forward");
    closed.close();
    closed.close(); // again: nothing happens
    float[] six = {1, 2, 3, 4, 5, 6};
    Tensor fits = Tensor.of(six, 2, 3);
    ByteBuffer odd = ByteBuffer.allocateDirect(64);
    odd.position(1).limit(25);

    CASES.put("no file", () -> Program.load(folder.resolve("none\ud83d\ude80.pte").toString()));
    CASES.put("a folder", () -> Program.load(folder.toString()));
    CASES.put("null path", () -> Program.load((String) null));
    CASES.put("zero in path", () -> Program.load("a\0b"));
    CASES.put("null bytes", () -> Program.load((ByteBuffer) null));
    CASES.put("no bytes", () -> Program.load(ByteBuffer.allocateDirect(0)));
    CASES.put("damaged", () -> Program.load(ByteBuffer.wrap(whole, 0, whole.length / 2)));
    CASES.put("null options", () -> Program.load(path, null));
    CASES.put("threads", () -> Program.load(path, new LoadOptions().threads(-1)));
    CASES.put("memory", () -> Program.load(path, new LoadOptions().maxMemory(-1)));
    CASES.put("little memory", () -> loadWithin(path, 1));
    CASES.put("no data file", () -> Program.load(path, new LoadOptions().dataFiles("none.ptd")));
    CASES.put("null data file", () -> Program.load(path, new LoadOptions().dataFiles("a", null)));
    CASES.put("no method", () -> open.method("backward"));
    CASES.put("null method", () -> open.method(null));
    CASES.put("closed program", () -> closed.method("forward"));
    CASES.put("closed program's names", () -> closed.methodNames());
    CASES.put("closed program's session", () -> session.method("forward"));
    CASES.put("too few inputs", () -> method.run());
    CASES.put("too many inputs", () -> method.run(fits, fits));
    CASES.put("null inputs", () -> method.run((Object[]) null));
    CASES.put("none for a tensor", () -> method.run((Object) null));
    CASES.put("number for a tensor", () -> method.run(1));
    CASES.put("text for a tensor", () -> method.run("one"));
    CASES.put("an array", () -> method.run((Object) six));
    CASES.put("another type", () -> method.run(Tensor.of(new int[6], 2, 3)));
    CASES.put("another shape", () -> method.run(Tensor.of(six, 3, 2)));
    CASES.put("another rank", () -> method.run(Tensor.of(six, 6)));
    CASES.put("data between", () -> method.run(Tensor.wrap(Type.FLOAT32, odd, 2, 3)));
    CASES.put("too few values", () -> Tensor.of(six, 2, 4));
    CASES.put("a negative size", () -> Tensor.of(six, -2, -3));
    CASES.put("a huge shape", () -> Tensor.zeros(Type.FLOAT32, 1L << 40, 1L << 40));
    CASES.put("a huge tensor", () -> Tensor.zeros(Type.UINT8, 1L << 31));
    CASES.put("many dimensions", () -> Tensor.zeros(Type.UINT8, new long[17]));
    CASES.put("null values", () -> Tensor.of((float[]) null, 2, 3));
    CASES.put("null shape", () -> Tensor.of(six, (long[]) null));
    CASES.put("null type", () -> Tensor.zeros(null, 1));
    CASES.put("heap memory", () -> Tensor.wrap(Type.INT8, ByteBuffer.allocate(6), 6));
    CASES.put("small memory", () -> Tensor.wrap(Type.INT8, ByteBuffer.allocateDirect(5), 6));
    CASES.put("channels of a matrix", () -> fits.asChannelsLast());
    CASES.put("ints of floats", () -> fits.ints());
    CASES.put("closed method", () -> closedMethod(path).run(fits));
    CASES.put("closed method's inputs", () -> closedMethod(path).inputs());
    CASES.put("closed method's state", () -> closedMethod(path).reset());
    CASES.put("cut short", () -> cutShort(whole, folder));

    for (Map.Entry<String, Case> one : CASES.entrySet()) {
      String what;
      try {
        one.getValue().run();
        what = "nothing: it went through";
      } catch (EdgewiseException e) {
        what = e.code() + ": " + e.getMessage();
      } catch (RuntimeException e) {
        what = e.getClass().getSimpleName() + ": " + e.getMessage();
      }
      System.out.println(one.getKey() + ": " + what.replace('\n', ' '));
    }
    // What was refused leaves what is open in use; a method outlives its program.
    System.out.println("after all: " + sum(method.run(fits)) + " " + sum(orphan.run(fits)));
  }

  private static double sum(Object[] outputs) {
    double sum = 0;
    for (float value : ((Tensor) outputs[0]).floats()) sum += value;
    return sum;
  }

  private static void loadWithin(String path, long bytes) {
    try (Program program = Program.load(path, new LoadOptions().maxMemory(bytes))) {
      program.method("forward").close();
    }
  }

  private static Method closedMethod(String path) {
    try (Program program = Program.load(path);
        Method method = program.method("forward")) {
      return method;
    }
  }

  /** A mapped file from which somebody takes what was not read yet. */
  private static void cutShort(byte[] whole, Path folder) throws Exception {
    Path path = folder.resolve("cut.pte");
    Files.write(path, whole);
    try (Program program = Program.load(path.toString())) {
      try (java.nio.channels.FileChannel file =
          java.nio.channels.FileChannel.open(path, java.nio.file.StandardOpenOption.WRITE)) {
        file.truncate(0);
      }
      program.method("forward").close();
    }
  }
}
