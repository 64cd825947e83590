import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.Arrays;
import java.util.Base64;
import org.edgewise.LoadOptions;
import org.edgewise.Method;
import org.edgewise.Program;
import org.edgewise.Session;
import org.edgewise.Tensor;
import org.edgewise.Type;

/**
 * Does what lines of standard input say, and prints what comes out, a line for each value:
 *
 * <pre>
 * load PATH [CACHE]                    a program, by its file
 * bytes PATH | heap PATH               by its bytes
 * session NAME                         methods after it share state; without a name: they do not
 * method NAME                          loads it
 * describe                             its inputs and outputs
 * run VALUE...                         runs it
 * floats TENSOR                        the same as FLOAT32
 * reset
 * </pre>
 *
 * A tensor is TYPE:SIZE,SIZE...:BASE64, with ":nhwc" if its channels are last; others are int:1,
 * number:0.5, bool:true, text:abc and none.
 */
final class Run {
  public static void main(String[] arguments) throws Exception {
    BufferedReader lines =
        new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    Program program = null;
    Session session = null;
    Method method = null;
    for (String line = lines.readLine(); line != null; line = lines.readLine()) {
      String[] words = line.split(" ");
      switch (words[0]) {
        case "load":
          LoadOptions options = new LoadOptions().threads(2);
          if (words.length > 2) options.cacheDir(words[2]);
          program = Program.load(words[1], options);
          System.out.println(program.methodNames());
          break;
        case "bytes":
        case "heap":
          byte[] all = Files.readAllBytes(Paths.get(words[1]));
          ByteBuffer bytes = ByteBuffer.wrap(all);
          if (words[0].equals("bytes")) {
            bytes = ByteBuffer.allocateDirect(all.length + 7);
            bytes.position(7);
            bytes.put(all);
            bytes.position(7);
          }
          program = Program.load(bytes);
          System.out.println(program.methodNames());
          break;
        case "session":
          session = words.length > 1 ? program.newSession() : null;
          break;
        case "method":
          method = session == null ? program.method(words[1]) : session.method(words[1]);
          break;
        case "describe":
          System.out.println(method.inputs() + " -> " + method.outputs());
          break;
        case "run":
          Object[] inputs = new Object[words.length - 1];
          for (int i = 0; i < inputs.length; i++) inputs[i] = read(words[i + 1]);
          for (Object output : method.run(inputs)) System.out.println(write(output));
          break;
        case "floats":
          Tensor given = (Tensor) read(words[1]);
          System.out.println(write(Tensor.of(given.floats(), given.shape())));
          break;
        case "reset":
          method.reset();
          break;
        default:
          throw new IllegalArgumentException(line);
      }
    }
    method.close();
    if (session != null) session.close();
    program.close();
  }

  private static Object read(String word) {
    String[] parts = word.split(":", -1);
    switch (parts[0]) {
      case "int":
        return Long.valueOf(parts[1]);
      case "number":
        return Double.valueOf(parts[1]);
      case "bool":
        return Boolean.valueOf(parts[1]);
      case "text":
        return parts[1];
      case "none":
        return null;
      default:
        long[] shape = {};
        if (!parts[1].isEmpty()) {
          shape = Arrays.stream(parts[1].split(",")).mapToLong(Long::parseLong).toArray();
        }
        byte[] data = Base64.getDecoder().decode(parts[2]);
        // Aligned to no more than the largest element.
        ByteBuffer direct = ByteBuffer.allocateDirect(8 + data.length);
        direct.position(8);
        direct.put(data);
        direct.position(8);
        Tensor tensor = Tensor.wrap(Type.valueOf(parts[0]), direct, shape);
        return parts.length > 3 ? tensor.asChannelsLast() : tensor;
    }
  }

  private static String write(Object output) {
    if (!(output instanceof Tensor)) return String.valueOf(output);
    Tensor tensor = (Tensor) output;
    byte[] data = new byte[tensor.data().remaining()];
    tensor.data().get(data);
    String shape = Arrays.toString(tensor.shape()).replaceAll("[\\[\\] ]", "");
    return tensor.type() + ":" + shape + ":" + Base64.getEncoder().encodeToString(data);
  }
}
