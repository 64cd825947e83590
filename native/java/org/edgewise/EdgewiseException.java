package org.edgewise;

import java.nio.charset.StandardCharsets;

/** The runtime refuses: {@link #getMessage()} is "[where] rule; got X; try Y". */
public final class EdgewiseException extends RuntimeException {
  private static final long serialVersionUID = 1L;

  /** What kind of failure it is; the numbers are those of edgewise.h. */
  public enum Code {
    /** The file breaks a rule of the format. */
    INVALID_PROGRAM(1),
    /** The caller passed something that the program cannot take. */
    INVALID_ARGUMENT(2),
    /** A method, operator, backend or file that does not exist. */
    NOT_FOUND(3),
    /** Well formed, but not something this runtime does. */
    UNSUPPORTED(4),
    OUT_OF_MEMORY(5),
    IO(6),
    /** A delegate failed. */
    BACKEND(7),
    INTERNAL(8),
    CANCELLED(9);

    final int number;

    Code(int number) {
      this.number = number;
    }
  }

  private final Code code;

  EdgewiseException(Code code, String message) {
    super(message);
    this.code = code;
  }

  /** Called by the library; the message is UTF-8. */
  EdgewiseException(int number, byte[] message) {
    this(codeOf(number), new String(message, StandardCharsets.UTF_8));
  }

  public Code code() {
    return code;
  }

  private static Code codeOf(int number) {
    for (Code code : Code.values()) {
      if (code.number == number) return code;
    }
    return Code.INTERNAL;
  }
}
