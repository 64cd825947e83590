package org.edgewise;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;

/** A method with its memory. Runs come one after the other, whatever threads call them. */
public final class Method extends Handle {
  Method(Object lock, long address) {
    super("Method", lock, address);
  }

  public List<ValueInfo> inputs() {
    synchronized (lock) {
      int count = Native.inputCount(address());
      List<ValueInfo> infos = new ArrayList<>(count);
      for (int i = 0; i < count; i++) infos.add(new ValueInfo(Native.inputInfo(address(), i)));
      return Collections.unmodifiableList(infos);
    }
  }

  public List<ValueInfo> outputs() {
    synchronized (lock) {
      int count = Native.outputCount(address());
      List<ValueInfo> infos = new ArrayList<>(count);
      for (int i = 0; i < count; i++) infos.add(new ValueInfo(Native.outputInfo(address(), i)));
      return Collections.unmodifiableList(infos);
    }
  }

  /**
   * Runs the method.
   *
   * @param inputs as many as the method has: a Tensor; a Byte, Short, Integer or Long; a Float or
   *     Double; a Boolean; a String; null for None. What a tensor holds must not change meanwhile.
   * @return its outputs: Tensor, Long, Double, Boolean, String, or null for None. They are the
   *     caller's; later runs do not change them.
   */
  public Object[] run(Object... inputs) {
    if (inputs == null) {
      throw new NullPointerException(
          "[Method.run] inputs must be an array; got null; try run((Object) null) for one None");
    }
    synchronized (lock) {
      long method = address();
      int count = Native.inputCount(method);
      if (inputs.length != count) {
        throw new IllegalArgumentException(
            "[Method.run] the method has " + count + " inputs; got " + inputs.length);
      }
      for (int i = 0; i < count; i++) set(method, i, inputs[i]);
      Native.execute(method);
      Object[] outputs = new Object[Native.outputCount(method)];
      for (int i = 0; i < outputs.length; i++) outputs[i] = output(method, i);
      return outputs;
    }
  }

  /** Puts state that the model writes, its session's too, back to its first values. */
  public void reset() {
    synchronized (lock) {
      Native.reset(address());
    }
  }

  private static void set(long method, int index, Object input) {
    if (input instanceof Tensor) {
      Tensor tensor = (Tensor) input;
      Native.setTensor(
          method, index, tensor.type.number, tensor.shape, tensor.dimOrder, tensor.bytes);
    } else if (input instanceof Boolean) {
      Native.setBoolean(method, index, (Boolean) input);
    } else if (input instanceof Double || input instanceof Float) {
      Native.setNumber(method, index, ((Number) input).doubleValue());
    } else if (input instanceof Long
        || input instanceof Integer
        || input instanceof Short
        || input instanceof Byte) {
      Native.setInteger(method, index, ((Number) input).longValue());
    } else if (input instanceof String) {
      Native.setString(method, index, Native.utf8("Method.run", (String) input));
    } else if (input == null) {
      Native.setNone(method, index);
    } else {
      throw new IllegalArgumentException(
          "[Method.run] input " + index + " must be a Tensor, a number, a Boolean, a String or"
              + " null; got " + input.getClass().getName() + "; try Tensor.of");
    }
  }

  private static Object output(long method, int index) {
    ValueInfo info = new ValueInfo(Native.output(method, index));
    switch (info.kind()) {
      case TENSOR:
        if (info.bytes() > Integer.MAX_VALUE) {
          throw new EdgewiseException(
              EdgewiseException.Code.UNSUPPORTED,
              "[Method.run] an output in Java has at most " + Integer.MAX_VALUE + " bytes; got "
                  + info.bytes());
        }
        ByteBuffer data = ByteBuffer.allocateDirect((int) info.bytes());
        Native.copyOutput(method, index, data);
        return new Tensor(info.type(), info.shape(), null, data);
      case INTEGER:
        return info.integer();
      case NUMBER:
        return info.number();
      case BOOLEAN:
        return info.integer() != 0;
      case STRING:
        return Native.text(Native.outputString(method, index));
      case NONE:
        return null;
      default:
        throw new EdgewiseException(
            EdgewiseException.Code.UNSUPPORTED,
            "[Method.run] outputs in Java are tensors, numbers and text; got a list as output "
                + index);
    }
  }

  @Override
  void free(long closed) {
    Native.freeMethod(closed);
  }
}
