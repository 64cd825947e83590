// What runs on an NPU: time by unit, cycles by layer, memory over time. All of it is expected by
// models of the device, but for the time of the CPU, which a profile measured.

const MOST_LAYERS = 20; // shown before all are asked for

// [heading, value to sort by, its text, explanation]; text columns have no bar and sort upwards.
const LAYER_COLUMNS = [
  { id: "number", name: "#", of: (r) => r.number, show: (r) => count(r.number), tip: "In the order of execution" },
  { id: "op", name: "Layer", of: (r) => r.op, text: true },
  { id: "model", name: "Cycles, model", of: (r) => r.model, heat: true, tip: "By edgewise's model of the command stream, with waiting for transfers" },
  { id: "cycles", name: "Cycles, compiler", of: (r) => r.cycles, heat: true, tip: "By the NPU's compiler" },
  { id: "module", name: "Module", of: (r) => r.module, text: true, show: (r) => `<span class="clipped" title="${esc(r.module)}">${esc(r.module)}</span>` },
  { id: "line", name: "Line", of: (r) => r.line, text: true, show: (r) => `<code title="${esc(r.source)}">${esc(r.line)}</code>` },
  { id: "waiting", name: "Waiting", of: (r) => r.waiting, tip: "For transfers, by edgewise's model" },
  { id: "macs", name: "MACs", of: (r) => r.macs, show: (r) => (r.macs ? macs(r.macs) : "") },
  { id: "used", name: "MACs used", of: (r) => r.used, show: (r) => (r.used ? percent(r.used, 1) : ""), tip: "Of those that could be done in the compiler's cycles" },
  { id: "bound", name: "Limited by", of: (r) => r.bound, text: true, tip: "What the kernel waits for most, by edgewise's model" },
  { id: "staging", name: "Staging", of: (r) => r.staging, show: (r) => (r.staging ? bytes(r.staging) : ""), tip: "Memory that the layer needs at once" },
];

function layerRows(method, delegate) {
  return (delegate.estimates?.layers || []).map((l, number) => {
    const node = l.node === undefined ? null : method.nodes[l.node];
    const row = { op: "", cycles: 0, model: 0, waiting: 0, macs: 0, used: 0, staging: 0, bound: "", memories: {}, ...l };
    const source = node?.source || "";
    return { ...row, number, key: node?.key, module: node ? modulePath(node) : "", source, line: source ? place(source) : "" };
  });
}

// The table of a delegate's layers. how: { by, up, all } of its sorting.
function layerTable(method, program, delegate, number, how) {
  const rows = layerRows(method, delegate);
  if (!rows.some((r) => r.cycles || r.model)) return "";
  const memories = [...new Set(rows.flatMap((r) => Object.keys(r.memories)))].filter((name) => rows.some((r) => r.memories[name]));
  const columns = [...LAYER_COLUMNS.filter((c) => rows.some(c.of)), ...memories.map((name) => (
    { id: `memory ${name}`, name, of: (r) => r.memories[name] || 0, tip: `Cycles in which ${name} is read or written, by the compiler` }))];
  const usual = columns.some((c) => c.id === "model") ? "model" : "cycles";
  const by = columns.find((c) => c.id === (how.by || usual)) || columns[0];
  const up = how.up ? 1 : -1;
  const sorted = [...rows].sort((a, b) => up * (by.text ? String(by.of(a)).localeCompare(String(by.of(b))) : by.of(a) - by.of(b)) || a.number - b.number);
  const shown = how.all ? sorted : sorted.slice(0, MOST_LAYERS);
  const sums = {};
  const largest = {};
  for (const c of columns.filter((one) => one.heat)) {
    sums[c.id] = rows.reduce((a, r) => a + c.of(r), 0);
    largest[c.id] = Math.max(1, ...rows.map(c.of));
  }
  const head = columns.map((c) => `<th scope="col" class="${c.text ? "" : "num"}"${c === by ? ` aria-sort="${how.up ? "ascending" : "descending"}"` : ""}>
    <button type="button" class="sort" data-sort="${esc(c.id)}"${c.tip ? ` data-tip="${esc(c.tip)}"` : ""}>${esc(c.name)}</button></th>`).join("");
  const cell = (c, r) => {
    if (c.id === "op") return `<th scope="row">${r.key ? `<button type="button" class="link" data-go="${r.key}">${esc(r.op)}</button>` : esc(r.op)}</th>`;
    const text = c.show ? c.show(r) : c.text ? esc(c.of(r)) : c.of(r) ? count(c.of(r)) : "";
    if (!c.heat) return `<td class="${c.text ? "" : "num"}">${text}</td>`;
    const heat = Math.round(62 * Math.sqrt(c.of(r) / largest[c.id]));
    return `<td class="num heat" style="--heat-of:${heat}%">${text} <small>${percent(c.of(r), sums[c.id])}</small></td>`;
  };
  const body = shown.map((r) => `<tr>${columns.map((c) => cell(c, r)).join("")}</tr>`).join("");
  const more = rows.length > MOST_LAYERS ? `<button type="button" class="more" data-all="1">${how.all ? `Show the first ${MOST_LAYERS}` : `Show all ${count(rows.length)} layers`}</button>` : "";
  return `<div class="layers-of" data-program="${program}" data-delegate="${number}"><h4>Cycles by layer <small>${esc(delegate.estimates.source)}${sums.model ? " and edgewise's model" : ""}; ${plural(rows.length, "layer")}</small></h4>
    <div class="scroll"><table class="layers"><thead><tr>${head}</tr></thead><tbody>${body}</tbody></table></div>${more}</div>`;
}

// When kernels and transfers run. Returns SVG.
function npuChart(told, rows, width) {
  const [row, left, top] = [34, 66, 8];
  const cycles = number(told.cycles);
  const x = (t) => left + (number(t) / Math.max(1, cycles)) * (width - left - 12);
  const hues = { NPU: backendColour("EthosUBackend"), DMA: "var(--dma)", waiting: "var(--line)" };
  const lanes = Object.entries(told.lanes).map(([lane, { spans }], at) => {
    const y = top + at * row;
    const rects = spans.map(([begin, end, what, layer]) => {
      const of = rows[layer];
      const where = of ? [of.op, of.module, of.line].filter(Boolean).join(", ") : "";
      const text = `${where ? `${where}: ` : ""}${what}: ${count(end - begin)} cycles from ${count(begin)}`;
      const go = of && of.key && lane === "NPU" ? ` data-go="${of.key}"` : "";
      return `<g${go} data-tip="${esc(text)}"><rect x="${x(begin).toFixed(2)}" y="${y + 4}" width="${Math.max(0.5, x(end) - x(begin)).toFixed(2)}" height="${row - 8}" style="--c:${hues[lane] || "var(--line)"}"/></g>`;
    });
    return `<text class="axis" x="${left - 8}" y="${y + row / 2 + 4}" text-anchor="end">${esc(lane)}</text><line class="grid" x1="${left}" x2="${width - 12}" y1="${y + row}" y2="${y + row}"/>${rects.join("")}`;
  });
  const height = top + lanes.length * row;
  const few = width < 600 ? [0, 0.5, 1] : [0, 0.25, 0.5, 0.75, 1];
  const marks = few.map((s) => `<text class="axis" x="${x(s * cycles)}" y="${height + 18}" text-anchor="${s === 0 ? "start" : s === 1 ? "end" : "middle"}">${count(Math.round(s * cycles))}</text>`);
  return `<svg class="chart npu" width="${width}" height="${height + 26}" role="img" aria-label="NPU timeline: ${count(cycles)} cycles">${lanes.join("")}${marks.join("")}</svg>`;
}

// The memory that a delegate computes in, over its layers; one chart for each memory.
function arenaCharts(method, delegate, width) {
  const blocks = delegate.estimates?.memory || [];
  return [...new Set(blocks.map((b) => b[1]))].map((memory) => {
    const own = blocks.filter((b) => b[1] === memory);
    const size = Math.max(1, ...own.map((b) => b[2] + b[3]));
    const drawn = own.map(([name, , at, length, first, last, of]) => {
      const node = of === null ? null : method.nodes[of];
      const label = node ? node.leaf || modulePath(node) || node.name : name;
      const text = `${label}${node ? ` (${shortOp(node.op) || node.kind})` : ""}: ${bytes(length)} at ${count(at)}, layers ${first} to ${last}`;
      return { text, label, at, size: length, first, last, hue: node ? backendColour("EthosUBackend") : "var(--dma)", go: node ? node.key : "" };
    });
    const steps = delegate.estimates.layers.length;
    return `<h4>${esc(memory)} over the layers <small>${bytes(size)} at most, ${plural(own.length, "tensor")}; <span class="pill"><i style="background:var(--dma)"></i>inputs and buffers of weights</span></small></h4>${placesChart(drawn, size, steps, width, `${memory} of the delegate`)}`;
  }).join("");
}

// Time of the instructions that no NPU runs, as the profile has it; null without one.
function measuredCpu(method) {
  const told = method.data.profile?.instructions;
  if (!told?.length) return null;
  const npu = new Set(method.data.npu.map((d) => d.delegate));
  return told.reduce((a, [at, us]) => a + (npu.has(method.data.instructions[at]?.delegate) ? 0 : us || 0), 0);
}

// What takes the time of a run: one after the other above, transfers beside them below.
function timeBar(method) {
  const known = method.data.npu.filter((d) => !d.problem);
  if (!known.length) return "";
  const us = (d, cycles) => (1e6 * number(cycles)) / Math.max(1, number(d.clock));
  const sum = (lane) => known.reduce((a, d) => a + us(d, d.lanes[lane]?.busy), 0);
  const whole = known.reduce((a, d) => a + us(d, d.cycles), 0);
  const [kernels, waiting, dma, cpu] = [sum("NPU"), sum("waiting"), sum("DMA"), measuredCpu(method)];
  const rest = Math.max(0, whole - kernels - waiting);
  const parts = [["NPU computes", kernels, "var(--ethosu)"], ["NPU waits for transfers", waiting + rest, "var(--io)"]];
  if (cpu !== null) parts.push(["CPU, measured by the profile", cpu, "var(--runtime)"]);
  const all = parts.reduce((a, [, value]) => a + value, 0) || 1;
  const left = method.calls.filter((n) => n.delegate === undefined).length;
  const untimed = cpu === null && left ? `<span>CPU: ${plural(left, "operator")}, not timed; <code>--profile</code> adds what it takes</span>` : "";
  const piece = ([name, value, hue]) => (value ? `<i style="width:${(100 * value) / all}%;background:${hue}" data-tip="${esc(name)}: ${time(value)}"></i>` : "");
  const key = ([name, value, hue]) => `<span><span class="pill"><i style="background:${hue}"></i>${esc(name)}</span> ${time(value)}, ${percent(value, all)}</span>`;
  return `<div class="time-of"><div class="stack tall" role="img" aria-label="${esc(parts.map(([name, value]) => `${name} ${time(value)}`).join(", "))}">${parts.map(piece).join("")}</div>
    <div class="stack beside" style="width:${(100 * whole) / all}%">${piece(["DMA", (dma * all) / Math.max(1e-9, whole), "var(--dma)"])}</div>
    <div class="legend">${parts.map(key).join("")}<span><span class="pill"><i style="background:var(--dma)"></i>DMA, beside them</span> ${time(dma)}, ${percent(dma, whole)} of the NPU's time</span>${untimed}</div></div>`;
}

// sorting: by program and delegate, what the reader chose.
function npuSection(methods, width, sorting) {
  const several = methods.length > 1;
  const parts = methods.flatMap((m, i) => {
    const numbers = new Set([...m.data.npu.map((d) => d.delegate), ...m.data.delegates.flatMap((d, n) => (d.estimates ? [n] : []))]);
    const each = [...numbers].map((n) => {
      const [told, delegate] = [m.data.npu.find((d) => d.delegate === n), m.data.delegates[n] || {}];
      const table = layerTable(m, i, delegate, n, sorting[`${i} ${n}`] || {});
      const arena = arenaCharts(m, delegate, width);
      const about = !told || told.problem ? "" : `${esc(told.target)}: ${count(told.cycles)} cycles, ${time((1e6 * told.cycles) / told.clock)} at ${count(told.clock / 1e6)} MHz, by edgewise's model`;
      const chart = !told ? "" : told.problem ? `<p class="empty">No timeline: ${esc(told.problem)}</p>` : npuChart(told, layerRows(m, delegate), width);
      if (!table && !arena && !chart) return "";
      return `<div class="npu-of" data-program="${i}"><h3>${several ? `${esc(m.program.name)} ` : ""}delegate ${Number(n)} <small>${about}</small></h3>${chart}${table}${arena}</div>`;
    }).join("");
    return each ? [`${timeBar(m) ? `${several ? `<h3>${esc(m.program.name)}</h3>` : ""}${timeBar(m)}` : ""}${each}`] : [];
  });
  if (!parts.length) return "";
  return `<h2 id="npu-h">On the NPU</h2><p class="lead">What its compiler and edgewise's model of the command stream expect. Nothing of the NPU was measured.</p>${parts.join("")}`;
}
