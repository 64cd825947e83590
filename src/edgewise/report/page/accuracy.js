// Where accuracy goes: decibels along the layers, source lines, values of the worst, what to try.

// Decibels along the layers; the lower, the noisier. series: [name, layers, which of a layer's fields,
// number of the colour, whether dashed].
function accuracyChart(series, width) {
  const [height, left, top] = [240, 54, 12];
  const values = series.flatMap(([, layers, at]) => layers.map((l) => l[at]).filter((v) => v !== null));
  if (!values.length) return "";
  const [low, high] = [Math.min(0, Math.floor(Math.min(...values) / 10) * 10), Math.ceil(Math.max(...values, 10) / 10) * 10];
  const y = (v) => top + height - ((v - low) / (high - low)) * height;
  const ticks = [];
  const step = high - low > 60 ? 20 : 10;
  for (let v = low; v <= high; v += step) ticks.push(`<line class="grid" x1="${left}" x2="${width - 10}" y1="${y(v)}" y2="${y(v)}"/><text class="axis" x="${left - 8}" y="${y(v) + 4}" text-anchor="end">${v} dB</text>`);
  const lines = series.map(([name, layers, field, hue, dashed]) => {
    const x = (i) => left + 8 + (i / Math.max(1, layers.length - 1)) * (width - left - 26);
    const at = layers.map((l, i) => [x(i), y(l[field] === null ? high : l[field])]);
    const dots = layers.map((l, i) => {
      const text = `${l[1] || l[0]} (${shortOp(l[2])}): ${l[field] === null ? "exact" : `${l[field].toFixed(1)} dB`}${name ? `, ${name}` : ""}`;
      return `<circle cx="${at[i][0].toFixed(1)}" cy="${at[i][1].toFixed(1)}" r="${layers.length > 150 ? 2 : 3.5}" data-module="${esc(l[1] || "")}" data-tip="${esc(text)}"/>`;
    });
    return `<g class="series s${hue % 4}${dashed ? " dashed" : ""}"><polyline points="${at.map((p) => p.map((v) => v.toFixed(1)).join(",")).join(" ")}"/>${dots.join("")}</g>`;
  });
  return `<svg class="chart accuracy" width="${width}" height="${height + top + 8}" role="img" aria-label="Signal-to-noise ratio by layer">${ticks.join("")}${lines.join("")}</svg>`;
}

// A layer's place in the file's numbers of added noise, as a share of all.
const addedBy = (layers) => layers.reduce((a, l) => a + l[5], 0);

const nodeOfLayer = (method, module) => method.nodes.find((n) => n.noise && modulePath(n) === module);

function toNode(method, program, module, text) {
  const node = nodeOfLayer(method, module);
  return node ? `<button type="button" class="link" data-program="${program}" data-go="${node.key}">${esc(text)}</button>` : esc(text);
}

// The layers that add most noise, with the decibels of the program before.
function noisyTable(method, program, most = 12) {
  const told = method.data.accuracy;
  const all = addedBy(told.layers);
  const rows = [...told.layers].filter((l) => l[5] > 0).sort((a, b) => b[5] - a[5]).slice(0, most);
  if (!rows.length) return "";
  const before = told.before !== null;
  const largest = rows[0][5];
  const db = (value) => (value === null ? "" : value.toFixed(1));
  const gain = (l) => (l[3] === null || l[4] === null ? "" : `${l[3] >= l[4] ? "+" : "−"}${Math.abs(l[3] - l[4]).toFixed(1)}`);
  const cells = (l) => [
    `<th scope="row">${toNode(method, program, l[1], l[2].split(" ").map(shortOp).join(" "))}</th>`,
    `<td class="num heat" style="--heat-of:${Math.round(62 * Math.sqrt(l[5] / largest))}%">${percent(l[5], all)}</td>`,
    before ? `<td class="num">${db(l[4])}</td>` : "",
    `<td class="num">${db(l[3])}</td>`,
    before ? `<td class="num">${gain(l)}</td>` : "",
    `<td><span class="clipped">${esc(l[1])}</span></td><td><code title="${esc(l[6])}">${esc(place(l[6]))}</code></td>`,
  ];
  return `<h4>Layers that add most noise</h4><div class="scroll"><table class="layers"><thead><tr><th>Layer</th><th class="num">Noise added</th>
    ${before ? `<th class="num">${esc(told.before)}, dB</th>` : ""}<th class="num">${before ? "Now, dB" : "dB"}</th>${before ? `<th class="num">Gain</th>` : ""}<th>Module</th><th>Line</th></tr></thead>
    <tbody>${rows.map((l) => `<tr>${cells(l).join("")}</tr>`).join("")}</tbody></table></div>`;
}

function linesTable(told) {
  if (!told.lines.length) return "";
  const largest = told.lines[0][2] || 1;
  return `<h4>By source line</h4><table class="ops"><tbody>${told.lines.map(([source, operators, part]) => `<tr><th scope="row"><code title="${esc(source)}">${esc(place(source) || "unknown")}</code></th>
    <td class="num">${percent(part, 1)}</td><td class="wide"><span class="bar"><i style="width:${(100 * part) / largest}%;background:var(--heat)"></i></span></td><td class="what">${esc(operators.join("; "))}</td></tr>`).join("")}</tbody></table>`;
}

// The float model's values as bars, the program's as a line. Heights by the root, to show rare ones.
function histogram(method, program, h) {
  const [width, height] = [220, 74];
  const most = Math.max(1, ...h.wanted, ...h.got);
  const each = width / Math.max(1, h.wanted.length);
  const y = (n) => height - (height - 4) * Math.sqrt(n / most);
  const bars = h.wanted.map((n, i) => (n ? `<rect x="${(i * each).toFixed(1)}" y="${y(n).toFixed(1)}" width="${Math.max(1, each - 1).toFixed(1)}" height="${(height - y(n)).toFixed(1)}"/>` : "")).join("");
  const line = h.got.map((n, i) => `${((i + 0.5) * each).toFixed(1)},${y(n).toFixed(1)}`).join(" ");
  const show = (v) => Number(v.toPrecision(3)).toLocaleString("en-US");
  const name = h.op.split(" ").map(shortOp).join(" ");
  return `<figure class="histogram"><figcaption>${toNode(method, program, h.module, h.module || name)} <small>${esc(h.module ? name : "")}${h.db === null ? "" : ` ${h.db.toFixed(1)} dB`}</small></figcaption>
    <svg viewBox="0 0 ${width} ${height + 16}" role="img" aria-label="${esc(`Values of ${h.module || name}, from ${show(h.low)} to ${show(h.high)}`)}">${bars}<polyline points="${line}"/>
    <text x="0" y="${height + 13}">${show(h.low)}</text><text x="${width}" y="${height + 13}" text-anchor="end">${show(h.high)}</text></svg>
    <p><small>largest ${show(h.peak)} × root mean square</small></p></figure>`;
}

function histograms(method, program) {
  const told = method.data.accuracy.histograms;
  if (!told.length) return "";
  return `<h4>Values of the noisiest layers <small>bars: the float model's; line: the program's; heights by the square root</small></h4>
    <div class="histograms">${told.slice(0, 8).map((h) => histogram(method, program, h)).join("")}</div>`;
}

function accuracySection(methods, width) {
  const known = methods.map((m, i) => [m, i]).filter(([m]) => m.data.accuracy);
  const several = methods.length > 1;
  const series = known.flatMap(([m, i]) => {
    const told = m.data.accuracy;
    const name = several ? m.program.name : "";
    const now = [name || (told.before === null ? "" : "now"), told.layers, 3, i, false];
    return told.before === null ? [now] : [[`${name ? `${name}, ` : ""}${told.before}`, told.layers, 4, several ? i : 1, true], now];
  });
  const chart = series.length ? accuracyChart(series, width) : "";
  if (!chart) return "";
  const keys = series.length > 1 ? `<div class="legend">${series.map(([name, , , hue, dashed]) => `<span class="key"><i class="s${hue % 4}${dashed ? " hollow" : ""}"></i>${esc(name)}</span>`).join("")}</div>` : "";
  const parts = known.map(([m, i]) => {
    const told = m.data.accuracy;
    const advice = told.advice.length ? `<div class="advice"><h4>What to try</h4><ol>${told.advice.map((line) => `<li>${esc(line)}</li>`).join("")}</ol></div>` : "";
    const body = [advice, noisyTable(m, i), linesTable(told), histograms(m, i)].filter(Boolean).join("");
    return body ? `<div class="accuracy-of">${several ? `<h3>${esc(m.program.name)}</h3>` : ""}${body}</div>` : "";
  });
  return `<h2 id="accuracy-h">Accuracy</h2><p class="lead">Signal-to-quantization-noise ratio of each layer next to the float model; lower is noisier.</p>${keys}${chart}${parts.join("")}`;
}
