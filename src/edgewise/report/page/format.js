// Text: escaping, units, names. Everything that comes from a file passes through `esc`.

const ESCAPES = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;" };
const esc = (text) => String(text ?? "").replace(/[&<>"']/g, (c) => ESCAPES[c]);

const number = (n) => (Number.isFinite(Number(n)) ? Number(n) : 0);
const count = (n) => Number(n).toLocaleString("en-US");
const plural = (n, noun) => `${count(n)} ${noun}${n === 1 ? "" : "s"}`;

function scaled(value, units, step) {
  let unit = 0;
  while (value >= step && unit < units.length - 1) {
    value /= step;
    unit += 1;
  }
  const digits = value >= 100 || Number.isInteger(value) ? 0 : value >= 10 ? 1 : 2;
  return `${value.toFixed(digits)} ${units[unit]}`;
}
const bytes = (n) => scaled(n, ["B", "kB", "MB", "GB"], 1000);
const macs = (n) => scaled(n, ["MAC", "kMAC", "MMAC", "GMAC", "TMAC"], 1000);
const time = (us) => scaled(us, ["µs", "ms", "s"], 1000);
const decibels = (noise) => `${noise.exact ? "exact" : `${noise.db.toFixed(1)} dB`}${noise.was ? `, before ${noise.was.toFixed(1)} dB` : ""}`;

function percent(part, whole) {
  const share = whole ? (100 * part) / whole : 0;
  if (share > 0 && share < 0.1) return "<0.1 %";
  return `${share < 10 && share > 0 ? share.toFixed(1) : share.toFixed(0)} %`;
}

// `aten.convolution.default` -> `convolution`, `aten::add.out` -> `add`, `Conv2d` -> `Conv2d`.
function shortOp(op) {
  if (!op) return "";
  const parts = op.split(op.includes("::") ? "::" : ".");
  return (parts.length > 1 ? parts[1] : op).split(".")[0].replace(/^_+/, "");
}
const shortType = (type) => type.split(".").pop();
const shape = (type) => {
  const found = /\[(.*)\]$/.exec(type);
  return found ? found[1].split(", ").join("×") || "scalar" : type;
};
const place = (source) => source.split("/").slice(-1)[0];

// One name and colour for each backend; others share a colour.
const BACKENDS = {
  runtime: ["Runtime kernels", "runtime"],
  XnnpackBackend: ["XNNPACK", "xnnpack"],
  EthosUBackend: ["Ethos-U", "ethosu"],
  NeutronBackend: ["Neutron", "neutron"],
};
const backendName = (id) => (BACKENDS[id] || [id])[0];
const backendClass = (id) => (BACKENDS[id] || [id, "other"])[1];
const backendColour = (id) => `var(--${backendClass(id)})`;

const clip = (text, length) => (text.length > length ? text.slice(0, length - 1) + "…" : text);
