// What is known of the selected node or module.

const fact = (name, value) => (value ? `<dt>${esc(name)}</dt><dd>${value}</dd>` : "");
const link = (method, item, text) =>
  `<button type="button" class="link" data-go="${item.key}">${esc(text || item.name || item.label)}</button>`;
const pill = (id) => `<span class="pill"><i style="background:${backendColour(id)}"></i>${esc(backendName(id))}</span>`;

function detailsOf(item, method) {
  if (!item) return emptyDetails(method);
  return item.isGroup ? groupDetails(item, method) : nodeDetails(item, method);
}

function emptyDetails(method) {
  const hint = method.program.complete ? "" : `<p class="note">This file has no record beside it, so modules, lines and reasons are not known.
    Save with <code>program.save(path, record=True)</code> to get them.</p>`;
  return `<h3>Nothing selected</h3><p>Select a box or a row to see its shapes, its line in the model, where it runs and what it costs.
    Double-click a module, or its arrow, to open it.</p>${hint}<hr>${groupDetails(method.root, method)}`;
}

function crumbs(item, method) {
  const steps = ancestors(item).filter((g) => g.path && !g.isRun);
  const above = steps.map((g) => link(method, g, g.label)).join(`<span aria-hidden="true"> › </span>`);
  const leaf = item.leaf ? `<span>${esc(leafName(item))}</span>` : "";
  const parts = [above, leaf].filter(Boolean).join(`<span aria-hidden="true"> › </span>`);
  return parts ? `<nav class="crumbs" aria-label="Module">${parts}</nav>` : "";
}

function refusal(r) {
  return `<li><p>${pill(r.backend)} <b>needs:</b> ${esc(r.rule)}</p>
    ${r.got ? `<p><b>got:</b> <code>${esc(r.got)}</code></p>` : ""}${r.hint ? `<p><b>try:</b> ${esc(r.hint)}</p>` : ""}</li>`;
}

function nodeDetails(n, method) {
  const call = n.kind === "call";
  const total = method.root.sums;
  const kind = { input: "input of the method", output: "output of the method", state: "state that the method updates" }[n.kind];
  const where = call ? `${pill(n.backend)}${n.delegate !== undefined ? ` delegate ${n.delegate}` : ""}` : "";
  const why = n.refusals.length ? `<section class="why"><h4>Why it is not delegated</h4><ul>${n.refusals.map(refusal).join("")}</ul>
    ${n.splits ? `<p>It stands between two delegates: data leaves one and enters the other.</p>` : ""}</section>` : "";
  const none = call && !n.refusals.length && n.backend === "runtime" && method.program.complete
    ? `<p class="note">No backend was asked to take it.</p>` : "";
  const noise = n.noise ? `${esc(decibels(n.noise))}${n.noise.added ? ` <small>adds ${percent(n.noise.added, 1)} noise</small>` : ""}` : "";
  const others = (n.with || []).map((i) => link(method, method.nodes[i])).join(", ");
  const tensors = (list, name) => list.map((t, i) => fact(list.length > 1 ? `${name} ${i}` : name, `<code>${esc(t)}</code>`)).join("");
  const list = (items) => items.slice(0, 8).map((one) => link(method, one)).join(", ") + (items.length > 8 ? ` and ${items.length - 8} more` : "");
  return `${crumbs(n, method)}<h3>${esc(call ? shortOp(n.op) : n.name)}</h3><p class="full"><code>${esc(call ? n.op : kind)}</code></p>${why}${none}
    <dl>${fact("Runs on", where)}${fact("Node", `<code>${esc(n.name)}</code>`)}${fact("Module", n.leafType || n.parent.type ? `<code>${esc(n.leafType || n.parent.type)}</code>` : "")}
    ${fact("Line", n.source ? `<code class="path">${esc(n.source)}</code>` : "")}${fact("Piece of", n.from ? `<code>${esc(n.from)}</code>` : "")}
    ${fact("Time", n.us ? `${time(n.us)} <small>${percent(n.us, total.us)}</small>` : "")}${fact("Timed with", others)}
    ${n.folded !== undefined ? fact("Computed by", link(method, method.nodes[n.folded])) : ""}${fact("Accuracy", noise)}
    ${tensors(n.in, "Input")}${tensors(n.out, "Output")}${fact("Stored as", n.stored ? esc(n.stored) : "")}
    ${fact("Weights", n.weights.map(([name, type, size]) => `<code>${esc(name)}</code> <code>${esc(type)}</code> <small>${bytes(size)}</small>`).join("<br>"))}
    ${fact("MACs", n.macs ? `${macs(n.macs)} <small>${percent(n.macs, total.macs)}</small>` : "")}${fact("Bytes moved", n.bytes ? bytes(n.bytes) : "")}
    ${Object.entries(n.attributes).map(([k, v]) => fact(k, `<code>${esc(v)}</code>`)).join("")}
    ${n.at !== undefined ? fact("Instruction", count(n.at)) : ""}${fact("Reads", list(n.sources))}${fact("Read by", list(n.readers))}
    ${fact("Notes", n.notes.map(esc).join("<br>"))}</dl>`;
}

function groupDetails(g, method) {
  const total = method.root.sums;
  const places = Object.entries(g.places).sort((a, b) => b[1] - a[1]);
  const metric = method.metrics.find((m) => m !== "nodes") || "nodes";
  const dear = [...g.children].sort((a, b) => b.sums[metric] - a.sums[metric]).filter((c) => c.sums[metric]).slice(0, 6);
  const rows = Object.entries(METRICS).filter(([key]) => g.sums[key] && key !== "nodes")
    .map(([key, m]) => fact(m.name, `${m.show(g.sums[key])} <small>${percent(g.sums[key], total[key])}</small>`)).join("");
  return `${crumbs(g, method)}<h3>${esc(g.label)}</h3><p class="full"><code>${esc(g.type || (g.isRun ? "operators in a row" : ""))}</code></p>
    <dl>${fact("Operators", count(g.sums.nodes))}${fact("Runs on", places.map(([id, n]) => `${pill(id)} ${count(n)}`).join("<br>"))}
    ${fact("Not delegated", g.refused ? count(g.refused) : "")}${rows}${fact("Worst layer", g.worst < Infinity ? `${g.worst.toFixed(1)} dB` : "")}</dl>
    ${dear.length > 1 ? `<h4>Costs most: ${esc(METRICS[metric].name)}</h4><ol class="dear">${dear.map((c) => `<li>${link(method, c, c.isGroup ? c.label : `${c.leaf || c.name}`)}<span>${METRICS[metric].show(c.sums[metric])}</span></li>`).join("")}</ol>` : ""}`;
}
