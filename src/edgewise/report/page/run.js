// Runs the page's own programs in the browser. Only where the page is served with the runtime for
// that (`edgewise report --live`): source.live tells where its parts are.

const RUNS = 20;

// Random numbers that are the same for each program and each time: a normal distribution of
// variance 1, from a generator of 32 bits (mulberry32) by Box and Muller's transform.
function normals(count, seed = 1) {
  const uniform = () => {
    seed = (seed + 0x6d2b79f5) | 0;
    let t = Math.imul(seed ^ (seed >>> 15), 1 | seed);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
  return Float64Array.from({ length: count }, () =>
    Math.sqrt(-2 * Math.log(1 - uniform())) * Math.cos(2 * Math.PI * uniform()));
}

// An image file as a tensor of [1, channels, height, width]: 0 to 1, of integers 0 to 255.
async function imageTensor(file, { type, shape: [, channels, height, width] }) {
  const canvas = new OffscreenCanvas(width, height).getContext("2d");
  canvas.drawImage(await createImageBitmap(file), 0, 0, width, height);
  const rgba = canvas.getImageData(0, 0, width, height).data;
  const values = new Float64Array(channels * height * width);
  for (let i = 0; i < height * width; i++) {
    const [r, g, b] = rgba.subarray(4 * i, 4 * i + 3);
    if (channels === 1) values[i] = 0.299 * r + 0.587 * g + 0.114 * b;
    else [r, g, b].forEach((v, c) => { values[c * height * width + i] = v; });
  }
  const scale = isFloat(type) ? 1 / 255 : 1;
  return elementsOf(type, values.map((v) => v * scale));
}

const isImage = ({ type, shape }) =>
  shape.length === 4 && shape[0] === 1 && [1, 3].includes(shape[1]) && (isFloat(type) || type === "uint8");

// How an input can be filled: [name, whether a file is chosen].
function fillings(info) {
  if (info.kind !== "tensor") return { value: false };
  const ways = isFloat(info.type) ? { random: false, zeros: false } : { zeros: false };
  if (countOf(info.shape) <= 64) ways.values = false;
  if (isImage(info)) ways.image = true;
  if (ELEMENTS[info.type]?.[1]) ways[".npy file"] = true;
  return ways;
}

function numbersIn(text, where) {
  const numbers = text.split(/[\s,]+/).filter(Boolean).map(Number);
  if (numbers.some(Number.isNaN)) throw new Error(`${where} takes numbers; got ${text}`);
  return numbers;
}

// What the form's row gives for an input.
async function filled(row, info, where) {
  const [way, text] = [row.querySelector("select").value, row.querySelector("[data-text]").value.trim()];
  if (info.kind !== "tensor") {
    if (info.kind === "boolean") return text === "true" || text === "1";
    if (info.kind === "string") return text;
    const [value] = numbersIn(text || "0", where);
    return info.kind === "number" ? value : Math.trunc(value);
  }
  const shape = numbersIn(row.querySelector("[data-shape]").value.replaceAll("×", " "), where);
  const size = countOf(shape);
  if (!shape.every((n) => Number.isInteger(n) && n >= 0)) throw new Error(`${where} takes a shape of whole numbers; got ${shape}`);
  const tensor = (data) => ({ type: info.type, shape, data });
  if (way === "random") return tensor(elementsOf(info.type, normals(size)));
  if (way === "zeros") return tensor(elementsOf(info.type, new Float64Array(size)));
  if (way === "values") {
    const given = numbersIn(text, where);
    if (given.length !== size) throw new Error(`${where} takes ${plural(size, "value")}; got ${count(given.length)}`);
    return tensor(elementsOf(info.type, given));
  }
  const file = row.querySelector("[type=file]").files[0];
  if (!file) throw new Error(`${where} needs a file; choose one, or fill it in another way`);
  if (way === "image") return tensor(await imageTensor(file, { type: info.type, shape }));
  const read = readNpy(await file.arrayBuffer());
  if (read.type !== info.type) throw new Error(`${where} takes ${info.type}; ${file.name} holds ${read.type}; try astype("${info.type}")`);
  return read;
}

const shown = (value) => (Number.isFinite(value) ? Number(value.toPrecision(4)).toLocaleString("en-US", { maximumSignificantDigits: 4 }) : String(value));

// The signal-to-noise ratio of an output next to the first program's, in decibels.
function ratio(wanted, got) {
  let [signal, noise] = [0, 0];
  wanted.forEach((w, i) => {
    signal += w * w;
    noise += (w - got[i]) ** 2;
  });
  return noise === 0 ? "exact" : `${(10 * Math.log10(signal / noise)).toFixed(1)} dB`;
}

function outputRow(value, index, program, first) {
  if (!value?.data) return `<tr><th scope="row">output ${index}</th><td>${esc(typeof value)}</td><td></td><td colspan="4">${esc(value)}</td><td></td></tr>`;
  const numbers = numbersOf(value);
  let [low, high, sum] = [Infinity, -Infinity, 0];
  numbers.forEach((v) => {
    low = Math.min(low, v);
    high = Math.max(high, v);
    sum += v;
  });
  const stats = numbers.length ? [low, sum / numbers.length, high].map(shown) : ["", "", ""];
  const same = first?.data && first.data.length === value.data.length && isFloat(value.type);
  const head = Array.from(numbers.subarray(0, 5), shown).join(", ");
  return `<tr><th scope="row">output ${index}</th><td>${esc(value.type)}</td><td>${esc(value.shape.join("×"))}</td>${stats.map((s) => `<td class="num">${s}</td>`).join("")}
    <td>${head}${numbers.length > 5 ? ", …" : ""}</td><td class="num">${same ? ratio(numbersOf(first), numbers) : ""}</td>
    <td><button type="button" class="link" data-save="${program} ${index}">Save .npy</button></td></tr>`;
}

class Runner {
  constructor(host, live) {
    this.host = host;
    this.live = live;
    this.loaded = [];
    host.innerHTML = `<h2 id="run-h">Run</h2><p class="lead">In this browser, by WebAssembly; inputs and outputs stay here.</p>
      <div class="toolbar"><label class="field">Threads <input id="run-threads" type="number" min="1" max="64" value="${Math.min(4, navigator.hardwareConcurrency || 1)}"></label>
      <button type="button" id="run-start">Load</button><span id="run-said" role="status"></span></div><div id="run-inputs"></div><div id="run-outputs"></div>`;
    host.hidden = false;
    $("run-start").addEventListener("click", () => this.guarded(() => (this.infos ? this.run() : this.load())));
    $("run-threads").addEventListener("change", () => this.unload());
    host.addEventListener("change", (e) => this.choose(e.target));
    host.addEventListener("click", (e) => this.save(e.target.closest("[data-save]")));
  }

  // Another method: its inputs, if the programs are loaded.
  show(methods) {
    this.methods = methods;
    this.infos = null;
    for (const id of ["run-inputs", "run-outputs"]) $(id).innerHTML = "";
    $("run-start").textContent = "Load";
    if (this.loaded.length) this.guarded(() => this.load());
  }

  say(text, failed = false) {
    $("run-said").textContent = text;
    $("run-said").classList.toggle("failed", failed);
  }

  async guarded(work) {
    $("run-start").disabled = $("run-threads").disabled = true;
    try {
      await work();
    } catch (failure) {
      this.say(failure.message, true);
    } finally {
      $("run-start").disabled = $("run-threads").disabled = false;
    }
  }

  unload() {
    for (const one of this.loaded) one?.program?.close();
    this.loaded = [];
    this.show(this.methods);
    this.say("");
  }

  // Programs that this runtime cannot run say why; the others run.
  async load() {
    const { load } = await import(new URL(this.live.runtime, location));
    const threads = Number($("run-threads").value);
    for (const [i, path] of this.live.programs.entries()) {
      if (this.loaded[i]?.program) continue;
      this.say(`loading ${programs[i].name} …`);
      const begin = performance.now();
      try {
        const program = await load(new URL(path, location), { threads });
        this.loaded[i] = { program, milliseconds: performance.now() - begin };
      } catch (failure) {
        this.loaded[i] = { error: failure.message };
      }
    }
    for (const [i, one] of this.loaded.entries()) {
      if (!one.program) continue;
      delete one.error;
      try {
        one.described = await one.program.describe(this.methods[i].name);
      } catch (failure) {
        one.error = failure.message;
      }
    }
    const usable = this.loaded.findIndex((one) => !one.error);
    this.outputs([]);
    if (usable < 0) throw new Error("no program runs here");
    this.infos = this.loaded[usable].described.inputs;
    const names = this.methods[usable].nodes.filter((n) => n.kind === "input").map((n) => n.name);
    this.names = this.infos.map((_, i) => (names.length === this.infos.length ? names[i] : `input ${i}`));
    $("run-inputs").innerHTML = this.infos.length ? this.form() : "";
    $("run-start").textContent = `Run ${RUNS} times`;
    const times = this.loaded.filter((one) => one.program).map((one) => time(1000 * one.milliseconds));
    this.say(`loaded in ${times.join(", ")}`);
  }

  form() {
    const rows = this.infos.map((info, i) => {
      const ways = fillings(info);
      const options = Object.keys(ways).map((way) => `<option>${esc(way)}</option>`).join("");
      const fixed = info.dynamism === "static";
      const sizes = info.kind === "tensor" ? `<input data-shape size="14" value="${esc(info.shape.join("×"))}" aria-label="Shape of ${esc(this.names[i])}" ${fixed ? "readonly" : ""}>` : "";
      const plain = info.kind !== "tensor";
      return `<tr data-input="${i}"><th scope="row">${esc(this.names[i])}</th><td>${esc(info.type ?? info.kind)}</td><td>${sizes}</td>
        <td><select aria-label="How ${esc(this.names[i])} is filled"${plain ? " hidden" : ""}>${options}</select>
        <input data-text size="24" aria-label="Values of ${esc(this.names[i])}"${plain ? "" : " hidden"}><input type="file" aria-label="File for ${esc(this.names[i])}" hidden></td></tr>`;
    });
    return `<div class="scroll"><table class="layers"><thead><tr><th>Input</th><th>Type</th><th>Shape</th><th>Filled with</th></tr></thead><tbody>${rows.join("")}</tbody></table></div>`;
  }

  choose(target) {
    const row = target.closest("[data-input]");
    if (!row || target.tagName !== "SELECT") return;
    row.querySelector("[data-text]").hidden = target.value !== "values";
    const file = row.querySelector("[type=file]");
    file.hidden = !fillings(this.infos[row.dataset.input])[target.value];
    file.accept = target.value === "image" ? "image/*" : ".npy";
  }

  async run() {
    const rows = [...this.host.querySelectorAll("[data-input]")];
    const given = [];
    for (const [i, row] of rows.entries()) given.push(await filled(row, this.infos[i], this.names[i]));
    for (const [i, one] of this.loaded.entries()) {
      if (!one.described) continue;
      this.say(`running ${programs[i].name} …`);
      const times = [];
      delete one.error;
      try {
        for (let n = -1; n < RUNS; n++) { // the first prepares memory
          // State starts anew, so that each run is the same.
          await one.program.reset(this.methods[i].name);
          const done = await one.program.run(given, this.methods[i].name);
          one.outputs = done.outputs;
          if (n >= 0) times.push(done.milliseconds);
        }
        one.times = times.sort((a, b) => a - b);
      } catch (failure) {
        one.error = failure.message;
      }
    }
    this.outputs(this.loaded);
    this.say(this.loaded.every((one) => one.error) ? "" : "done");
  }

  outputs(ran) {
    const first = ran.find((one) => one.outputs && !one.error);
    $("run-outputs").innerHTML = this.loaded.map((one, i) => {
      const name = this.loaded.length > 1 ? `${esc(programs[i].name)} ` : "";
      if (one.error) return `<h3>${name || "Not run"}</h3><p class="failed">${esc(one.error)}</p>`;
      if (!ran.length) return "";
      const rows = one.outputs.map((value, n) => outputRow(value, n, i, one === first ? null : first.outputs[n]));
      return `<h3>${name}<small>${time(1000 * one.times[0])} at best, ${time(1000 * one.times[RUNS / 2])} in the middle of ${RUNS} runs</small></h3>
        <div class="scroll"><table class="layers"><thead><tr><th>Output</th><th>Type</th><th>Shape</th><th class="num">Least</th><th class="num">Mean</th><th class="num">Largest</th><th>First elements</th><th class="num">${one === first ? "" : "To the first"}</th><th></th></tr></thead><tbody>${rows.join("")}</tbody></table></div>`;
    }).join("");
  }

  save(button) {
    if (!button) return;
    const [program, index] = button.dataset.save.split(" ").map(Number);
    const link = document.createElement("a");
    link.href = URL.createObjectURL(writeNpy(this.loaded[program].outputs[index]));
    link.download = `output${index}.npy`;
    link.click();
    URL.revokeObjectURL(link.href);
  }
}
