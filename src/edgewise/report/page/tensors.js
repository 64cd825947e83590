// Elements of tensors: what array holds each type, halves as numbers, NumPy's .npy files.

// [array, NumPy's name, largest integer or null]. Halves are arrays of their bits.
const ELEMENTS = {
  float32: [Float32Array, "<f4"], float64: [Float64Array, "<f8"], float16: [Uint16Array, "<f2"],
  bfloat16: [Uint16Array, null], int8: [Int8Array, "|i1"], uint8: [Uint8Array, "|u1"],
  int16: [Int16Array, "<i2"], uint16: [Uint16Array, "<u2"], int32: [Int32Array, "<i4"],
  uint32: [Uint32Array, "<u4"], int64: [BigInt64Array, "<i8"], uint64: [BigUint64Array, "<u8"],
  bool: [Uint8Array, "|b1"],
};
const isFloat = (type) => type.includes("float");
const countOf = (shape) => shape.reduce((a, b) => a * b, 1);

const BITS = new DataView(new ArrayBuffer(4));

function halfToNumber(bits) {
  const [sign, exponent, fraction] = [bits & 0x8000 ? -1 : 1, (bits >> 10) & 31, bits & 1023];
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  return sign * (exponent ? (1024 + fraction) * 2 ** (exponent - 25) : fraction * 2 ** -24);
}

// Rounded to the nearest, halfway to even.
function numberToHalf(value) {
  if (Number.isNaN(value)) return 0x7e00;
  const sign = value < 0 || Object.is(value, -0) ? 0x8000 : 0;
  const size = Math.abs(value);
  if (size >= 65520) return sign | 0x7c00;
  const exponent = Math.max(-14, Math.floor(Math.log2(size || 2 ** -24)));
  const steps = size / 2 ** (exponent - 10);
  const down = Math.floor(steps), rest = steps - down;
  const rounded = rest > 0.5 || (rest === 0.5 && down % 2) ? down + 1 : down;
  return sign | (rounded + (exponent + 14) * 1024);
}

function bfloatToNumber(bits) {
  BITS.setUint32(0, bits << 16);
  return BITS.getFloat32(0);
}

function numberToBfloat(value) {
  BITS.setFloat32(0, value);
  const bits = BITS.getUint32(0);
  return Number.isNaN(value) ? 0x7fc0 : (bits + 0x7fff + ((bits >>> 16) & 1)) >>> 16;
}

const DECODE = { float16: halfToNumber, bfloat16: bfloatToNumber };
const ENCODE = { float16: numberToHalf, bfloat16: numberToBfloat };

// Elements as numbers, and numbers as elements of a type.
const numbersOf = ({ type, data }) => Float64Array.from(data, DECODE[type] || Number);
function elementsOf(type, numbers) {
  const [Elements] = ELEMENTS[type];
  const big = Elements === BigInt64Array || Elements === BigUint64Array;
  return Elements.from(numbers, ENCODE[type] || (big ? (v) => BigInt(Math.trunc(v)) : Number));
}

// A tensor of a .npy file. Throws if it is none, or of another order or type than is known here.
function readNpy(buffer) {
  const head = new Uint8Array(buffer, 0, Math.min(10, buffer.byteLength));
  if (head.length < 10 || String.fromCharCode(...head.slice(1, 6)) !== "NUMPY") {
    throw new Error("a file must be NumPy's .npy; try numpy.save");
  }
  const wide = head[6] > 1;
  const length = wide ? new DataView(buffer).getUint32(8, true) : head[8] + 256 * head[9];
  const begin = (wide ? 12 : 10) + length;
  const text = new TextDecoder("latin1").decode(new Uint8Array(buffer, begin - length, length));
  const descr = /'descr': *'([^']+)'/.exec(text)?.[1] ?? "a structure";
  const type = Object.keys(ELEMENTS).find((one) => ELEMENTS[one][1]?.slice(1) === descr.slice(1));
  if (!type || descr[0] === ">") throw new Error(`arrays of ${descr} are not known here`);
  if (/'fortran_order': *True/.test(text)) {
    throw new Error("arrays must lie by rows; try numpy.ascontiguousarray");
  }
  const shape = (/'shape': *\(([^)]*)\)/.exec(text)?.[1] ?? "").split(",").filter((n) => n.trim()).map(Number);
  const [Elements] = ELEMENTS[type];
  const size = countOf(shape) * Elements.BYTES_PER_ELEMENT;
  if (begin + size > buffer.byteLength) throw new Error("the .npy file ends before its array does");
  return { type, shape, data: new Elements(buffer.slice(begin, begin + size)) };
}

// bfloat16, which NumPy lacks, is written as float32.
function writeNpy({ type, shape, data }) {
  const same = ELEMENTS[type][1] !== null;
  const [stored, elements] = same ? [type, data] : ["float32", Float32Array.from(data, DECODE[type])];
  const tuple = `(${shape.join(", ")}${shape.length === 1 ? "," : ""})`;
  const dict = `{'descr': '${ELEMENTS[stored][1]}', 'fortran_order': False, 'shape': ${tuple}, }`;
  const header = `${dict.padEnd(64 * Math.ceil((dict.length + 11) / 64) - 11)}\n`;
  const head = new Uint8Array(10 + header.length);
  head.set([0x93, ...new TextEncoder().encode("NUMPY"), 1, 0, header.length & 255, header.length >> 8]);
  head.set(new TextEncoder().encode(header), 10);
  return new Blob([head, elements]);
}
