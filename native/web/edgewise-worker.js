// The worker of edgewise.mjs: has the runtime, and one program. A page that computed itself would
// not answer its user meanwhile. A classic script, since Emscripten's loader is one.
"use strict";

const OPTIONS_BYTES = 36, VALUE_BYTES = 192; // see layout.c
const KINDS = ["none", "tensor", "integer", "number", "boolean", "string", "list"];
const TYPES = {
  0: ["uint8", Uint8Array], 1: ["int8", Int8Array], 2: ["int16", Int16Array],
  3: ["int32", Int32Array], 4: ["int64", BigInt64Array], 5: ["float16", Uint16Array],
  6: ["float32", Float32Array], 7: ["float64", Float64Array], 11: ["bool", Uint8Array],
  15: ["bfloat16", Uint16Array], 27: ["uint16", Uint16Array], 28: ["uint32", Uint32Array],
  29: ["uint64", BigUint64Array],
};
const DYNAMISM = ["static", "bounded", "unbounded"];

let runtime, program, methods = {};

const view = () => new DataView(runtime.wasmMemory.buffer);
const bytes = () => new Uint8Array(runtime.wasmMemory.buffer);

function text(pointer) {
  const all = bytes();
  return new TextDecoder().decode(all.slice(pointer, all.indexOf(0, pointer)));
}

function check(code) {
  if (code !== 0) throw new Error(text(runtime._edgewise_last_error()));
}

// Memory of the runtime for as long as `use` takes.
function withMemory(size, use) {
  const pointer = runtime._malloc(size);
  if (pointer === 0) throw new Error(`[edgewise] no memory for ${size} bytes`);
  try {
    return use(pointer);
  } finally {
    runtime._free(pointer);
  }
}

function withText(value, use) {
  const encoded = new TextEncoder().encode(value + "\0");
  return withMemory(encoded.length, (pointer) => {
    bytes().set(encoded, pointer);
    return use(pointer);
  });
}

function withValue(use) {
  return withMemory(VALUE_BYTES, (pointer) => {
    bytes().fill(0, pointer, pointer + VALUE_BYTES);
    return use(pointer);
  });
}

// What a method takes or gives: its kind, and of a tensor type, shape and dynamism.
function described(pointer) {
  const memory = view();
  const kind = KINDS[memory.getInt32(pointer, true)];
  if (kind !== "tensor") return { kind };
  const rank = memory.getUint32(pointer + 12, true);
  const sizes = Array.from({ length: rank }, (_, i) =>
    Number(memory.getBigInt64(pointer + 16 + 8 * i, true)));
  const type = memory.getInt32(pointer + 4, true);
  return {
    kind, shape: sizes, type: TYPES[type]?.[0] ?? `type ${type}`,
    dynamism: DYNAMISM[memory.getInt32(pointer + 8, true)],
  };
}

// Elements in the order of rows, whatever order of dimensions they lie in.
function inRows(data, shape, order) {
  if (order.every((dimension, i) => dimension === i)) return data.slice();
  const rank = shape.length, strides = new Array(rank);
  for (let i = rank - 1, stride = 1; i >= 0; i--) {
    strides[order[i]] = stride;
    stride *= shape[order[i]];
  }
  const result = new data.constructor(data.length), index = new Array(rank).fill(0);
  for (let i = 0, from = 0; i < data.length; i++) {
    result[i] = data[from];
    for (let d = rank - 1; d >= 0; d--) {
      from += strides[d];
      if (++index[d] < shape[d]) break;
      from -= strides[d] * shape[d];
      index[d] = 0;
    }
  }
  return result;
}

function read(pointer) {
  const memory = view(), { kind, shape, type } = described(pointer);
  switch (kind) {
    case "tensor": {
      const [, Elements] = TYPES[memory.getInt32(pointer + 4, true)];
      const length = shape.reduce((a, b) => a * b, 1);
      const order = Array.from(bytes().slice(pointer + 144, pointer + 144 + shape.length));
      const from = memory.getUint32(pointer + 164, true);
      const data = new Elements(memory.buffer, length === 0 ? 0 : from, length);
      return { type, shape, data: inRows(data, shape, order) };
    }
    case "integer": return memory.getBigInt64(pointer + 168, true);
    case "boolean": return memory.getBigInt64(pointer + 168, true) !== 0n;
    case "number": return memory.getFloat64(pointer + 176, true);
    case "string": return text(memory.getUint32(pointer + 184, true));
    default: return null;
  }
}

// Writes `given` as a value of the runtime and calls `use` with it.
function withInput(given, info, where, use) {
  return withValue((pointer) => {
    const set = (kind) => view().setInt32(pointer, KINDS.indexOf(kind), true);
    if (info.kind === "tensor") {
      const { type = info.type, shape = info.shape } = given?.data ? given : {};
      const data = given?.data ?? given;
      const number = Object.keys(TYPES).find((key) => TYPES[key][0] === type);
      const Elements = TYPES[number]?.[1];
      if (!Elements || !(data instanceof Elements)) {
        throw new Error(`[${where}] a ${type} tensor is a ${Elements?.name ?? "?"} of ` +
          `[${info.shape}]; got ${data?.constructor?.name ?? data}`);
      }
      if (data.length !== shape.reduce((a, b) => a * b, 1)) {
        throw new Error(`[${where}] shape [${shape}] needs ${shape.reduce((a, b) => a * b, 1)} ` +
          `elements; got ${data.length}`);
      }
      if (shape.length > 16) throw new Error(`[${where}] 16 dimensions at most; got ${shape.length}`);
      return withMemory(Math.max(1, data.byteLength), (memory) => {
        bytes().set(new Uint8Array(data.buffer, data.byteOffset, data.byteLength), memory);
        set("tensor");
        const struct = view();
        struct.setInt32(pointer + 4, Number(number), true);
        struct.setUint32(pointer + 12, shape.length, true);
        shape.forEach((size, i) => {
          struct.setBigInt64(pointer + 16 + 8 * i, BigInt(size), true);
          struct.setUint8(pointer + 144 + i, i);
        });
        struct.setUint32(pointer + 160, data.byteLength, true);
        struct.setUint32(pointer + 164, memory, true);
        return use(pointer);
      });
    }
    if (typeof given === "string") {
      return withText(given, (memory) => {
        set("string");
        view().setUint32(pointer + 184, memory, true);
        return use(pointer);
      });
    }
    if (given === null || given === undefined) {
      set("none");
    } else if (info.kind === "number") {
      set("number");
      view().setFloat64(pointer + 176, Number(given), true);
    } else {
      set(typeof given === "boolean" ? "boolean" : "integer");
      view().setBigInt64(pointer + 168, BigInt(given), true);
    }
    return use(pointer);
  });
}

function infos(method, which) {
  const count = runtime[`_edgewise_method_${which}_count`](method);
  return Array.from({ length: count }, (_, i) => withValue((pointer) => {
    check(runtime[`_edgewise_method_${which}_info`](method, i, pointer));
    return described(pointer);
  }));
}

function method(name) {
  methods[name] ??= withText(name, (pointer) => withMemory(4, (result) => {
    check(runtime._edgewise_method_load(program, pointer, 0, result));
    const handle = view().getUint32(result, true);
    return { handle, inputs: infos(handle, "input"), outputs: infos(handle, "output") };
  }));
  return methods[name];
}

const calls = {
  async start({ threads, folder }) {
    const at = (file) => new URL(file, folder).href;
    importScripts(at("edgewise-module.js"));
    // How many workers Emscripten begins with; it waits for the last of them, so there must be one.
    const workers = Math.max(1, threads - 1);
    runtime = await createEdgewise({
      threads: workers, mainScriptUrlOrBlob: at("edgewise-module.js"), locateFile: at,
    });
    return text(runtime._edgewise_version());
  },

  load({ file, threads }) {
    withMemory(OPTIONS_BYTES, (options) => withMemory(4, (result) => {
      bytes().fill(0, options, options + OPTIONS_BYTES);
      view().setUint32(options, OPTIONS_BYTES, true);
      view().setInt32(options + 4, threads, true);
      withMemory(Math.max(1, file.length), (copy) => {
        bytes().set(file, copy);
        check(runtime._edgewise_program_load_bytes(copy, file.length, options, result));
      });
      program = view().getUint32(result, true);
    }));
    const count = runtime._edgewise_program_method_count(program);
    return Array.from({ length: count }, (_, i) =>
      text(runtime._edgewise_program_method_name(program, i)));
  },

  describe({ name }) {
    const { inputs, outputs } = method(name);
    return { inputs, outputs };
  },

  run({ name, inputs }) {
    const { handle, inputs: wanted, outputs } = method(name);
    if (inputs.length !== wanted.length) {
      throw new Error(`[${name}] takes ${wanted.length} inputs; got ${inputs.length}`);
    }
    inputs.forEach((given, i) => withInput(given, wanted[i], `${name}, input ${i}`, (pointer) =>
      check(runtime._edgewise_method_set_input(handle, i, pointer))));
    const begin = performance.now();
    check(runtime._edgewise_method_execute(handle));
    const milliseconds = performance.now() - begin;
    const results = outputs.map((_, i) => withValue((pointer) => {
      check(runtime._edgewise_method_output(handle, i, pointer));
      return read(pointer);
    }));
    return { outputs: results, milliseconds };
  },

  reset({ name }) {
    check(runtime._edgewise_method_reset(method(name).handle));
  },
};

onmessage = async ({ data: { id, call, given } }) => {
  try {
    postMessage({ id, result: await calls[call](given) });
  } catch (failure) {
    postMessage({ id, error: failure?.message ?? String(failure) });
  }
};
