// Puts the page together and keeps its parts at the same selection.

const $ = (id) => document.getElementById(id);
const source = JSON.parse($("data").textContent);
const programs = source.programs.map((p) => {
  const program = { ...p };
  program.methods = p.methods.map((m) => new Method(program, m));
  return program;
});
const state = { methods: [], active: 0, metric: "nodes", cost: "weights", views: [], sorting: {} };

const tree = new TreeView($("tree"), { select });
const runner = source.live ? new Runner($("run"), source.live) : null;

function showMethod(name) {
  state.methods = methodsOf(programs, name);
  state.sorting = {};
  const metrics = Object.keys(METRICS).filter((m) => state.methods.some((one) => one.metrics.includes(m)));
  state.metric = state.cost = metrics[0] || "nodes";
  $("overview").innerHTML = overview(state.methods);
  const colours = ["backend", ...metrics.filter((m) => m !== "nodes")];
  if (state.methods.some((m) => m.noisy)) colours.push("noise");
  const names = { backend: "Backend", noise: "Accuracy" };
  $("colour").innerHTML = colours.map((c) => `<option value="${c}">${names[c] || METRICS[c].name}</option>`).join("");
  const hosts = state.methods.map((_, i) => `<div class="host" id="graph${i}"></div>`).join("");
  $("graphs").innerHTML = hosts;
  const drawn = state.methods.some((m) => m.edges.length);
  document.querySelector(".panes").classList.toggle("no-graph", !drawn);
  document.querySelector(".buttons").hidden = !drawn;
  document.querySelector("#colour").parentElement.hidden = !drawn;
  $("graphs").dataset.count = state.methods.length;
  state.views = drawn ? state.methods.map((m, i) => new GraphView($(`graph${i}`), m, { select })) : [];
  fill("refused", refusedSection(state.methods));
  fill("costs", metrics.length > 1 || metrics[0] !== "nodes" ? costsSection(state.methods, state.cost) : "");
  drawCharts();
  runner?.show(state.methods);
  activate(0);
  select(null);
}

function drawCharts() {
  const width = $("overview").clientWidth;
  fill("accuracy", accuracySection(state.methods, width));
  fill("npu", npuSection(state.methods, width, state.sorting));
  fill("memory", memorySection(state.methods, width));
}

function fill(id, html) {
  $(id).innerHTML = html;
  $(id).hidden = !html;
}

function activate(index) {
  state.active = index;
  const method = state.methods[index];
  const metric = method.metrics.includes(state.metric) ? state.metric : "nodes";
  tree.show(method, metric);
  document.querySelectorAll(".host").forEach((h, i) => h.classList.toggle("active", i === index && state.methods.length > 1));
}

function select(item, method = state.methods[state.active], from = null) {
  const index = state.methods.indexOf(method);
  if (index !== state.active && index >= 0) activate(index);
  state.views.forEach((view, i) => {
    const own = i === state.active ? item : item && view.method.like(item);
    view.select(own || null, view !== from);
  });
  tree.select(item);
  $("details").innerHTML = detailsOf(item, method);
  $("details").scrollTop = 0;
}

function search() {
  const text = $("search").value.trim();
  const method = state.methods[state.active];
  const hits = text ? method.search(text) : null;
  tree.find(hits);
  $("hits").textContent = hits ? plural(hits.length, "hit") : "";
  return hits;
}

// A button anywhere that names an item: go to it.
document.addEventListener("click", (e) => {
  const target = e.target.closest("[data-go]");
  if (!target) return;
  const holder = e.target.closest("[data-program]");
  const method = state.methods[holder ? Number(holder.dataset.program) : state.active];
  select(method.byKey.get(target.dataset.go), method);
  if (!$("details").contains(target)) $("explorer").scrollIntoView({ block: "start" });
});

$("costs").addEventListener("click", (e) => {
  const button = e.target.closest("[data-metric]");
  if (!button) return;
  state.cost = button.dataset.metric;
  fill("costs", costsSection(state.methods, state.cost));
  $("costs").querySelector(`[data-metric="${state.cost}"]`).focus();
});
$("npu").addEventListener("click", (e) => {
  const [heading, all] = [e.target.closest("[data-sort]"), e.target.closest("[data-all]")];
  const holder = (heading || all)?.closest("[data-delegate]");
  if (!holder) return;
  const key = `${holder.dataset.program} ${holder.dataset.delegate}`;
  const how = (state.sorting[key] ||= {});
  if (all) how.all = !how.all;
  else {
    const sorted = heading.parentElement.getAttribute("aria-sort");
    const text = LAYER_COLUMNS.find((c) => c.id === heading.dataset.sort)?.text;
    Object.assign(how, { by: heading.dataset.sort, up: sorted ? sorted === "descending" : Boolean(text || heading.dataset.sort === "number") });
  }
  const [method, delegate] = [state.methods[holder.dataset.program], Number(holder.dataset.delegate)];
  const scrolled = holder.querySelector(".scroll").scrollLeft;
  holder.outerHTML = layerTable(method, Number(holder.dataset.program), method.data.delegates[delegate], delegate, how);
  const made = $("npu").querySelector(`[data-program="${holder.dataset.program}"][data-delegate="${delegate}"]`);
  made.querySelector(".scroll").scrollLeft = scrolled;
  made.querySelector(all ? "[data-all]" : `[data-sort="${CSS.escape(heading.dataset.sort)}"]`)?.focus();
});
$("search").addEventListener("input", search);
$("search").addEventListener("keydown", (e) => {
  if (e.key === "Enter") {
    const hits = search();
    if (hits?.length) select(hits[0]);
  } else if (e.key === "Escape") {
    $("search").value = "";
    search();
  } else if (e.key === "ArrowDown") {
    $("tree").querySelector("[data-key]")?.focus();
    e.preventDefault();
  }
});
$("colour").addEventListener("change", () => {
  const chosen = $("colour").value;
  if (METRICS[chosen]) {
    state.metric = chosen;
    tree.metric = chosen;
    tree.draw();
  }
  for (const view of state.views) {
    view.colour = chosen;
    view.drawn = null;
    view.draw();
  }
});
$("expand").addEventListener("click", () => state.views.forEach((v) => v.openAll(true)));
$("collapse").addEventListener("click", () => state.views.forEach((v) => v.openAll(false)));

// Figures under the pointer.
document.addEventListener("pointermove", (e) => {
  const on = e.target.closest?.("[data-tip]");
  const tip = $("tip");
  tip.hidden = !on;
  if (!on) return;
  tip.textContent = on.dataset.tip;
  const box = tip.getBoundingClientRect();
  tip.style.left = `${Math.max(4, Math.min(e.clientX + 14, innerWidth - box.width - 8))}px`;
  tip.style.top = `${e.clientY + box.height + 24 > innerHeight ? e.clientY - box.height - 10 : e.clientY + 16}px`;
});

$("title").textContent = source.title;
const methodNames = [...new Set(programs.flatMap((p) => p.methods.filter((m) => m.nodes.length).map((m) => m.name)))];
const first = programs[0];
$("subtitle").textContent = programs.length > 1 ? plural(programs.length, "program")
  : [first.versions.edgewise && `edgewise ${first.versions.edgewise}`, first.versions.torch && `torch ${first.versions.torch}`,
    first.sha256 && `sha256 ${first.sha256.slice(0, 12)}`, !first.complete && "without a record: what the file itself tells"].filter(Boolean).join(" · ");
if (methodNames.length > 1) {
  $("method-field").hidden = false;
  $("method").innerHTML = methodNames.map((n) => `<option>${esc(n)}</option>`).join("");
  $("method").addEventListener("change", () => showMethod($("method").value));
}
$("footer").textContent = "Made by edgewise report. This page holds everything that it shows, paths of the model's source among it.";
showMethod(methodNames.includes("forward") ? "forward" : methodNames[0]);
let drawnFor = innerWidth;
addEventListener("resize", () => {
  if (innerWidth !== drawnFor) drawCharts();
  drawnFor = innerWidth;
});
document.documentElement.dataset.ready = "1";
