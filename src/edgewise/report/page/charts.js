// Pictures of a whole method: shares of costs, memory over time, accuracy along the layers.

// Nested bars: each level's widths are shares of the one above. Returns HTML.
function icicle(method, metric, depth = 4) {
  const whole = method.root.sums[metric];
  if (!whole) return "";
  const levels = [];
  const add = (item, left, at) => {
    const width = (100 * item.sums[metric]) / whole;
    if (width < 0.15 || at >= depth) return;
    (levels[at] ||= []).push({ item, left, width });
    if (!item.isGroup) return;
    let from = left;
    for (const child of item.children) {
      add(child, from, at + 1);
      from += (100 * child.sums[metric]) / whole;
    }
  };
  let from = 0;
  for (const child of method.root.children) {
    add(child, from, 0);
    from += (100 * child.sums[metric]) / whole;
  }
  const cell = ({ item, left, width }) => {
    const main = Object.entries(item.places).sort((a, b) => b[1] - a[1])[0];
    const name = item.isGroup ? item.label : item.leaf ? leafName(item) : title(item);
    const text = `${modulePath(item) || "model"} ${item.isGroup ? "" : title(item)}: ${METRICS[metric].show(item.sums[metric])}, ${percent(item.sums[metric], whole)}`;
    return `<button type="button" class="cell" data-go="${item.key}" data-tip="${esc(text)}" aria-label="${esc(text)}" tabindex="${width > 2 ? 0 : -1}"
      style="left:${left.toFixed(3)}%;width:${width.toFixed(3)}%;--c:${main ? backendColour(main[0]) : "var(--line)"}"><span>${width > 2.5 ? esc(name) : ""}</span></button>`;
  };
  return `<div class="icicle">${levels.map((cells) => `<div class="level">${cells.map(cell).join("")}</div>`).join("")}</div>`;
}

// Shares by operator, the dearest first.
function byOperator(method, metric, most = 8) {
  const sums = new Map();
  for (const n of method.calls) {
    const key = `${shortOp(n.op)}|${n.backend}`;
    const found = sums.get(key) || { op: shortOp(n.op), backend: n.backend, cost: 0, times: 0 };
    found.cost += n.sums[metric];
    found.times += 1;
    sums.set(key, found);
  }
  const all = [...sums.values()].filter((s) => s.cost).sort((a, b) => b.cost - a.cost);
  const top = all.slice(0, most);
  const rest = all.slice(most).reduce((a, b) => a + b.cost, 0);
  if (rest) top.push({ op: `${all.length - most} others`, backend: "", cost: rest, times: 0 });
  const whole = method.root.sums[metric];
  return `<table class="ops"><tbody>${top.map((s) => `<tr><th scope="row">${esc(s.op)}${s.times ? ` <small>× ${count(s.times)}</small>` : ""}</th>
    <td class="num">${METRICS[metric].show(s.cost)}</td><td class="num">${percent(s.cost, whole)}</td>
    <td class="wide"><span class="bar"><i style="width:${(100 * s.cost) / top[0].cost}%;background:${s.backend ? backendColour(s.backend) : "var(--line)"}"></i></span></td></tr>`).join("")}</tbody></table>`;
}

// Places in an arena (upwards) over time (to the right). Returns SVG.
// blocks: { text, label, at, size, first, last, hue, go }; steps: how many there are in time.
function placesChart(blocks, size, steps, width, label) {
  const [height, left, top] = [blocks.length < 4 ? 140 : 260, 66, 10];
  const first = Math.min(0, ...blocks.map((b) => b.first));
  const last = Math.max(1, steps, ...blocks.map((b) => b.last + 1));
  const x = (t) => left + ((t - first) / (last - first)) * (width - left - 12);
  const y = (b) => top + height - (b / size) * height;
  const rects = blocks.map((b) => {
    const [w, h] = [x(b.last + 1) - x(b.first), y(b.at) - y(b.at + b.size)];
    const name = w > 90 && h > 16 ? `<text x="${(x(b.first) + 7).toFixed(1)}" y="${(y(b.at + b.size) + 15).toFixed(1)}">${esc(clip(b.label, Math.floor(w / 7.5)))}</text>` : "";
    return `<g${b.go ? ` data-go="${b.go}"` : ""} data-tip="${esc(b.text)}"><rect x="${x(b.first).toFixed(1)}" y="${y(b.at + b.size).toFixed(1)}" width="${Math.max(1, w - 1).toFixed(1)}" height="${Math.max(1, h - 1).toFixed(1)}" rx="2" style="--c:${b.hue}"/>${name}</g>`;
  });
  const ticks = [0, 0.25, 0.5, 0.75, 1].map((s) => `<line class="grid" x1="${left}" x2="${width - 12}" y1="${y(s * size)}" y2="${y(s * size)}"/>
    <text class="axis" x="${left - 8}" y="${y(s * size) + 4}" text-anchor="end">${bytes(Math.round(s * size))}</text>`);
  const marks = [];
  const every = Math.max(1, Math.ceil(last / 8));
  for (let t = 0; t < steps; t += every) marks.push(`<text class="axis" x="${x(t + (steps < 9 ? 0.5 : 0))}" y="${height + top + 18}" text-anchor="middle">${count(t)}</text>`);
  if (first < 0) marks.push(`<text class="axis" x="${x(-0.5)}" y="${height + top + 18}" text-anchor="middle">inputs</text>`);
  return `<svg class="chart" width="${width}" height="${height + top + 26}" role="img" aria-label="${esc(label)}: ${plural(blocks.length, "block")} in ${bytes(size)}">${ticks.join("")}${rects.join("")}${marks.join("")}</svg>`;
}

// The method's own arenas, over its instructions.
function memoryChart(method, arena, blocks, width) {
  const drawn = blocks.map(([nodes, , at, size, first, last]) => {
    const label = nodes.map((i) => method.nodes[i].name).join(", ") || "unnamed";
    const node = method.nodes[nodes[0]];
    const hue = !node ? "var(--line)" : node.kind === "call" ? backendColour(node.backend) : "var(--io)";
    const text = `${label}: ${bytes(size)} at ${count(at)}, instructions ${first} to ${last}`;
    return { text, label, at, size, first, last, hue, go: nodes.length ? `n${nodes[0]}` : "" };
  });
  return placesChart(drawn, method.data.arenas[arena], method.data.instructions.length, width, "Memory plan");
}
