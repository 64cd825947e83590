/**
 * Runs `.pte` programs in a web page.
 *
 *   import { load } from "./edgewise.mjs";
 *   const program = await load("model.pte");
 *   const { outputs } = await program.run([new Float32Array(3 * 224 * 224)]);
 *   outputs[0].data; // Float32Array
 *
 * The runtime works in a worker with threads, for which the page must be cross-origin isolated: it
 * and all its parts come with `Cross-Origin-Opener-Policy: same-origin` and
 * `Cross-Origin-Embedder-Policy: require-corp`.
 */

/**
 * A tensor: elements by rows. Typed arrays by type: Float32Array "float32", Float64Array "float64",
 * Int8Array "int8", ..., BigInt64Array "int64"; Uint8Array "uint8" and "bool" (0 or 1);
 * Uint16Array "float16" and "bfloat16" (their bits).
 * @typedef {{type: string, shape: number[], data: ArrayBufferView}} Tensor
 *
 * What a method takes or gives. `shape` is the largest where `dynamism` is not "static".
 * @typedef {{kind: string, type?: string, shape?: number[], dynamism?: string}} Info
 */

export class Program {
  #worker;
  #waiting = new Map();
  #next = 0;

  /** @private */
  constructor(worker) {
    this.#worker = worker;
    worker.onmessage = ({ data: { id, result, error } }) => {
      const { resolve, reject } = this.#waiting.get(id);
      this.#waiting.delete(id);
      if (error === undefined) resolve(result);
      else reject(new Error(error));
    };
    worker.onerror = (event) => {
      const failure = new Error(`[edgewise] the worker failed: ${event.message ?? "it did not start"}`);
      for (const { reject } of this.#waiting.values()) reject(failure);
      this.#waiting.clear();
    };
    /** Names of the program's methods. @type {string[]} */
    this.methods = [];
    /** Release of the runtime. */
    this.version = "";
  }

  /** @private */
  call(name, given) {
    return new Promise((resolve, reject) => {
      const id = this.#next++;
      this.#waiting.set(id, { resolve, reject });
      this.#worker.postMessage({ id, call: name, given });
    });
  }

  /** @returns {Promise<{inputs: Info[], outputs: Info[]}>} */
  describe(method = this.methods[0]) {
    return this.call("describe", { name: method });
  }

  /**
   * Runs a method. An input is a {@link Tensor}, a typed array (of the largest shape), a number,
   * a boolean or a string. Copied; so are outputs.
   * @returns {Promise<{outputs: (Tensor|bigint|number|boolean|string|null)[], milliseconds: number}>}
   */
  run(inputs, method = this.methods[0]) {
    return this.call("run", { name: method, inputs });
  }

  /** Puts buffers that the method writes back to their initial values. */
  reset(method = this.methods[0]) {
    return this.call("reset", { name: method });
  }

  /** Ends the worker; its memory is free. */
  close() {
    this.#worker.terminate();
    for (const { reject } of this.#waiting.values()) reject(new Error("[edgewise] it was closed"));
    this.#waiting.clear();
  }
}

/**
 * Loads a program.
 * @param {string|URL|Blob|ArrayBuffer|Uint8Array} source an address, a file, or its bytes
 * @param {{threads?: number, folder?: string|URL}} options threads: of the runtime, as many as the
 *   machine's CPUs but at most 4 by default; folder: where the other files of the runtime are
 * @returns {Promise<Program>}
 */
export async function load(source, { threads, folder = new URL(".", import.meta.url) } = {}) {
  if (!globalThis.crossOriginIsolated) {
    throw new Error("[edgewise] threads need a page that is cross-origin isolated; got one that is " +
      "not; try the headers Cross-Origin-Opener-Policy: same-origin and " +
      "Cross-Origin-Embedder-Policy: require-corp");
  }
  threads ??= Math.min(4, navigator.hardwareConcurrency || 1);
  if (!Number.isInteger(threads) || threads < 1 || threads > 64) {
    throw new Error(`[edgewise] threads must be a number from 1 to 64; got ${threads}`);
  }
  const file = await bytesOf(source);
  const program = new Program(new Worker(new URL("edgewise-worker.js", folder)));
  try {
    program.version = await program.call("start", { threads, folder: new URL(folder, location).href });
    program.methods = await program.call("load", { file, threads });
  } catch (failure) {
    program.close();
    throw failure;
  }
  return program;
}

async function bytesOf(source) {
  if (source instanceof Uint8Array) return source;
  if (source instanceof ArrayBuffer) return new Uint8Array(source);
  if (source instanceof Blob) return new Uint8Array(await source.arrayBuffer());
  const answer = await fetch(source);
  if (!answer.ok) throw new Error(`[edgewise] ${source}: ${answer.status} ${answer.statusText}`);
  return new Uint8Array(await answer.arrayBuffer());
}
