// The parts of the page around the model: overview, what is not delegated, costs, memory.

const methodsOf = (programs, name) => programs.map((p) => p.methods.find((m) => m.name === name) || p.methods[0]);

function share(method, metric) {
  const all = method.calls.reduce((a, n) => a + n.sums[metric], 0);
  const taken = method.calls.filter((n) => n.delegate !== undefined).reduce((a, n) => a + n.sums[metric], 0);
  return all ? taken / all : null;
}

// [name, value of a method as text, the value, whether less is better]
const FIGURES = [
  ["File", (m) => (m.program.bytes ? bytes(m.program.bytes) : null), (m) => m.program.bytes],
  ["Median latency", (m) => (m.data.profile ? time(m.data.profile.call.p50) : null), (m) => m.data.profile?.call.p50],
  ["90th percentile", (m) => (m.data.profile ? time(m.data.profile.call.p90) : null), (m) => m.data.profile?.call.p90],
  ["Worst output", (m) => worstOutput(m), null],
  ["Delegates", (m) => count(m.data.delegates.length), null],
  ["Delegated", (m) => `${count(m.calls.filter((n) => n.delegate !== undefined).length)} of ${count(m.calls.length)}`, null],
  ["MACs delegated", (m) => (share(m, "macs") === null ? null : percent(share(m, "macs"), 1)), null],
  ["Weights", (m) => (m.root.sums.weights ? bytes(m.root.sums.weights) : null), (m) => m.root.sums.weights],
  ["Planned memory", (m) => (plannedBytes(m) ? bytes(plannedBytes(m)) : null), (m) => plannedBytes(m)],
  ["Work", (m) => (m.root.sums.macs ? macs(m.root.sums.macs) : null), null],
];

// What compilers of NPU programs expect, delegate by delegate. Nothing of it was measured.
function estimates(methods) {
  const rows = methods.flatMap((m) => m.data.delegates.map((d, i) => [m, d, i])).filter(([, d]) => d.estimates);
  if (!rows.length) return "";
  return `<div class="estimates"><h3>Estimates <small>of the NPU's compiler, not measured</small></h3>${rows.map(([m, d, i]) => `<p>${methods.length > 1 ? `${esc(m.program.name)} ` : ""}${pill(d.backend)} delegate ${i}, ${esc(d.estimates.source)}:
    ${Object.entries(d.estimates.figures).filter(([, value]) => value).map(([name, value]) => estimate(name, value)).join(", ")}</p>`).join("")}</div>`;
}

function estimate(name, value) {
  const isBytes = name.includes(" bytes");
  const shown = isBytes ? bytes(value) : Number(value).toLocaleString("en-US", { maximumSignificantDigits: 4 });
  return `<b>${esc(shown)}</b> ${esc(isBytes ? name.replace(" bytes", "") : name)}`;
}

const plannedBytes = (m) => Object.values(m.data.arenas).reduce((a, b) => a + b, 0);

function worstOutput(method) {
  const outputs = method.data.accuracy?.outputs;
  if (!outputs?.length) return null;
  const worst = Math.min(...outputs.map((o) => o[1] ?? Infinity));
  return worst === Infinity ? "exact" : `${worst.toFixed(1)} dB`;
}

function placesBar(method) {
  const total = Object.values(method.root.places).reduce((a, b) => a + b, 0);
  const entries = Object.entries(method.root.places).sort((a, b) => b[1] - a[1]);
  return `<div class="places" role="img" aria-label="${esc(entries.map(([id, n]) => `${backendName(id)} ${n}`).join(", "))}">
    <div class="stack">${entries.map(([id, n]) => `<i style="width:${(100 * n) / total}%;background:${backendColour(id)}"></i>`).join("")}</div>
    <div class="legend">${entries.map(([id, n]) => `<span>${pill(id)} ${plural(n, "operator")}</span>`).join("")}</div></div>`;
}

function overview(methods) {
  const rows = FIGURES.map(([name, text, value]) => [name, methods.map(text), value && methods.map(value)]).filter(([, texts]) => texts.some((t) => t !== null));
  if (methods.length === 1) {
    return `<div class="cards">${rows.map(([name, [text]]) => `<div class="card"><b>${esc(text)}</b><span>${esc(name)}</span></div>`).join("")}</div>${placesBar(methods[0])}${estimates(methods)}`;
  }
  const ratio = (values, i) => (i && values && values[0] && values[i] ? `<small>${(values[i] / values[0]).toFixed(2)} ×</small>` : "");
  return `<div class="scroll"><table class="compare"><thead><tr><td></td>${methods.map((m) => `<th scope="col">${esc(m.program.name)}</th>`).join("")}</tr></thead>
    <tbody>${rows.map(([name, texts, values]) => `<tr><th scope="row">${esc(name)}</th>${texts.map((t, i) => `<td>${t === null ? "–" : `${esc(t)} ${ratio(values, i)}`}</td>`).join("")}</tr>`).join("")}
    <tr><th scope="row">Runs on</th>${methods.map((m) => `<td>${placesBar(m)}</td>`).join("")}</tr></tbody></table></div>${estimates(methods)}`;
}

// What is refused by the same rules is one article; consequences are a line below.
function refusedSection(methods) {
  const several = methods.length > 1;
  let reasons = 0;
  const parts = methods.map((m, i) => {
    const known = m.data.refused.filter((c) => c.refusals.length);
    const follows = known.filter((c) => c.follows).reduce((a, c) => a + c.nodes.length, 0);
    const articles = known.filter((c) => !c.follows).map((c) => cause(m, i, c));
    const after = follows ? `<p class="note">${plural(follows, "quantization")} at the borders of delegates, on the CPU: ${follows === 1 ? "a consequence" : "consequences"} of what runs beside.</p>` : "";
    const told = articles.length ? `<div class="reasons">${articles.join("")}</div>` : "";
    reasons += articles.length;
    return told || after ? `${several ? `<h3>${esc(m.program.name)}</h3>` : ""}${told}${after}` : "";
  }).filter(Boolean);
  if (!parts.length) return "";
  const lead = reasons ? `<p class="lead">What the backends that were asked refused, and what would change that.</p>` : "";
  return `<h2 id="refused-h">Not delegated</h2>${lead}${parts.join("")}`;
}

function cause(method, program, c) {
  const nodes = c.nodes.map((n) => method.nodes[n]);
  const places = c.locations.slice(0, 3).map(([module, line]) => `<li>${esc(module)}${module && line ? " at " : ""}${line ? `<code title="${esc(line)}">${esc(place(line))}</code>` : ""}</li>`);
  const more = c.locations.length - places.length;
  const chips = nodes.slice(0, 12).map((n) => `<button type="button" class="chip" data-program="${program}" data-go="${n.key}">${esc(chipName(n))}</button>`).join("");
  const rules = c.refusals.map((r, at) => `<li><p>${pill(r.backend)} <b>needs:</b> ${esc(r.rule)}</p>${c.got[at].length ? `<p><b>got:</b> ${c.got[at].slice(0, 3).map((g) => `<code>${esc(g)}</code>`).join(" ")}</p>` : ""}</li>`);
  return `<article class="reason"><header><h4>${c.operators.map(([name, n]) => `${count(n)} × <code>${esc(name)}</code>`).join("<br>")}</h4>${c.splits ? `<span class="badge">between delegates</span>` : ""}
    <span class="cost">${bytes(nodes.reduce((a, n) => a + (n.bytes || 0), 0))} moved</span></header>
    <ul>${rules.join("")}</ul>${c.hints.map((hint) => `<p><b>try:</b> ${esc(hint)}</p>`).join("")}
    ${places.length ? `<ul class="lines">${places.join("")}${more > 0 ? `<li>and ${plural(more, "more line")}</li>` : ""}</ul>` : ""}
    <p class="chips">${chips}${nodes.length > 12 ? ` and ${nodes.length - 12} more` : ""}</p></article>`;
}

// Which node a chip is for, in the reader's words: its module, else its operator.
function chipName(n) {
  const module = n.leaf || modulePath(n);
  return module ? `${module} ${shortOp(n.op)}` : shortOp(n.op) || n.name;
}

function costsSection(methods, metric) {
  const metrics = Object.keys(METRICS).filter((m) => methods.some((one) => one.metrics.includes(m)) && m !== "nodes");
  const tabs = metrics.map((m) => `<button type="button" data-metric="${m}" aria-pressed="${m === metric}">${METRICS[m].name}</button>`).join("");
  const largest = Math.max(...methods.map((m) => m.root.sums[metric]));
  const parts = methods.map((m, i) => `<div class="cost-of" data-program="${i}"><h3>${methods.length > 1 ? `${esc(m.program.name)} ` : ""}<small>${METRICS[metric].show(m.root.sums[metric])} in all</small></h3>
    <div style="width:${methods.length > 1 ? Math.max(12, (100 * m.root.sums[metric]) / largest) : 100}%">${icicle(m, metric) || `<p class="empty">None known.</p>`}</div>${m.root.sums[metric] ? byOperator(m, metric) : ""}</div>`);
  return `<h2 id="costs-h">Where it goes</h2><div class="tabs" role="group" aria-label="Cost">${tabs}</div>${parts.join("")}`;
}

function memorySection(methods, width) {
  const parts = methods.flatMap((m, i) => Object.entries(m.data.arenas).map(([arena, size]) => {
    const blocks = m.data.memory.filter((b) => String(b[1]) === arena);
    if (!size || !blocks.length) return "";
    const total = blocks.reduce((a, b) => a + b[3], 0);
    const saved = total > 1.02 * size ? `; without sharing places it would be ${bytes(total)}` : "";
    return `<div data-program="${i}"><h3>${esc(methods.length > 1 ? `${m.program.name} ` : "")}<small>${arena === "1" ? "" : `arena ${arena}, shared by methods: `}${bytes(size)} for ${plural(blocks.length, "tensor")}${saved}</small></h3>${memoryChart(m, arena, blocks, width)}</div>`;
  })).filter(Boolean);
  if (!parts.length) return "";
  return `<h2 id="memory-h">Memory plan</h2><p class="lead">Each block is a tensor: its place in the arena, upwards, over the instructions that need it. What a delegate uses inside is its own.</p>${parts.join("")}`;
}
