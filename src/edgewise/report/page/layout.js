// Where boxes lie. Each expanded group is laid out by itself (dagre, from top to bottom) and is
// then one box in the group around it: no layout has more nodes than one group has children.

const BOX = { height: 46, least: 128, most: 232, pad: 16, head: 34, gap: 22, rank: 30 };

function boxWidth(item) {
  const text = Math.max(title(item).length * 7.6, subtitle(item).length * 6.4) + 40;
  return Math.round(Math.min(BOX.most, Math.max(BOX.least, text)));
}

class Layout {
  // open: a set of keys of groups that are expanded.
  constructor(method, open) {
    this.open = open;
    this.boxes = new Map();
    this.lines = [];
    this.level = this.connect(method);
    const size = this.arrange(method.root, true);
    this.width = size.width;
    this.height = size.height;
    this.place(method.root, 0, 0);
  }

  // Edges between the children of each group: by the group's key, "from|to" pairs.
  connect(method) {
    const level = new Map();
    const add = (group, from, to) => {
      if (!level.has(group.key)) level.set(group.key, new Set());
      level.get(group.key).add(`${from}|${to}`);
    };
    for (const [source, target] of method.edges) {
      const up = [source, ...ancestors(source).reverse()];
      const down = [target, ...ancestors(target).reverse()];
      const inside = new Set(down);
      const top = up.findIndex((one) => inside.has(one));
      const shared = up[top];
      const bottom = down.indexOf(shared);
      if (top === 0 || bottom === 0) continue;
      add(shared, up[top - 1].key, down[bottom - 1].key);
      for (let i = 1; i < top; i += 1) add(up[i], up[i - 1].key, "out");
      for (let i = 1; i < bottom; i += 1) add(down[i], "in", down[i - 1].key);
    }
    return level;
  }

  arrange(item, isRoot) {
    if (!item.isGroup || !(isRoot || this.open.has(item.key))) {
      return { width: boxWidth(item), height: BOX.height };
    }
    const known = this.known(item);
    if (known) return known;
    const names = ["in", "out", ...item.children.map((child) => child.key)];
    const number = new Map(names.map((name, index) => [name, index]));
    const sizes = item.children.map((child) => this.arrange(child, false));
    const edges = [...(this.level.get(item.key) || [])].map((pair) => pair.split("|").map((n) => number.get(n)));
    const plan = planned(sizes, edges.filter(([from, to]) => from !== to));
    const head = isRoot ? BOX.pad : BOX.head;
    const size = {
      width: Math.max(plan.width + 2 * BOX.pad, isRoot ? 0 : boxWidth(item)),
      height: plan.height + head + BOX.pad,
    };
    item.inner = { plan, names, head: head - plan.up, size, state: this.state(item) };
    return size;
  }

  // Which groups inside are open: what a layout made before was made for.
  state(group) {
    const inside = (one) => (one.isGroup && this.open.has(one.key) ? this.state(one) : "");
    return `(${group.key}${group.children.map(inside).join("")})`;
  }

  known(group) {
    if (!group.inner || group.inner.state !== this.state(group)) return null;
    return group.inner.size;
  }

  place(group, x, y) {
    const { plan, names, head } = group.inner;
    const own = this.boxes.get(group.key);
    const left = x + BOX.pad + (own ? (own.width - plan.width - 2 * BOX.pad) / 2 : 0);
    const top = y + head;
    group.children.forEach((child, index) => {
      const at = plan.boxes[index];
      const box = { item: child, x: left + at.x - at.width / 2, y: top + at.y - at.height / 2,
        width: at.width, height: at.height, open: child.isGroup && this.open.has(child.key) };
      this.boxes.set(child.key, box);
      if (box.open) this.place(child, box.x, box.y);
    });
    for (const edge of plan.edges) {
      const [from, to] = [names[edge.from], names[edge.to]];
      const points = edge.points.map((p) => [left + p.x, top + p.y]);
      if (from === "in") points[0] = [points[0][0], y + (own ? BOX.head - 8 : 0)];
      if (to === "out") points[points.length - 1][1] = y + (own ? own.height : 0);
      const ys = points.map((p) => p[1]);
      const xs = points.map((p) => p[0]);
      this.lines.push({ from, to, points, path: curve(points),
        x: Math.min(...xs), right: Math.max(...xs), y: Math.min(...ys), bottom: Math.max(...ys) });
    }
  }
}

const plans = new Map();

// Boxes of these sizes with these edges (numbers: 0 and 1 are the group's borders, where edges
// come in and go out, the rest are boxes). Models repeat their blocks, so plans are kept.
function planned(sizes, edges) {
  const key = `${sizes.map((s) => `${s.width}x${s.height}`)};${edges.map((e) => e.join("-"))}`;
  if (!plans.has(key)) plans.set(key, arranged(sizes, edges));
  return plans.get(key);
}

function arranged(sizes, edges) {
  const graph = new dagre.graphlib.Graph();
  // Network simplex draws shorter lines, but takes seconds for a hundred boxes.
  const ranker = sizes.length > 60 ? "longest-path" : "network-simplex";
  graph.setGraph({ rankdir: "TB", nodesep: BOX.gap, ranksep: BOX.rank, ranker });
  graph.setDefaultEdgeLabel(() => ({}));
  sizes.forEach((size, index) => graph.setNode(String(index + 2), { width: size.width, height: size.height }));
  for (const [from, to] of edges) {
    for (const end of [from, to]) if (end < 2) graph.setNode(String(end), { width: 1, height: 1 });
    graph.setEdge(String(from), String(to));
  }
  dagre.layout(graph);
  const { width, height } = graph.graph();
  // The edges from and to the border may be short.
  const up = graph.hasNode("0") ? BOX.rank - 12 : 0;
  const down = graph.hasNode("1") ? BOX.rank - 12 : 0;
  return {
    width, height: height - up - down, up,
    boxes: sizes.map((_, index) => graph.node(String(index + 2))),
    edges: graph.edges().map((e) => ({ from: Number(e.v), to: Number(e.w), points: graph.edge(e).points })),
  };
}

// A smooth line from top to bottom through the points.
function curve(points) {
  const f = (p) => `${p[0].toFixed(1)},${p[1].toFixed(1)}`;
  let path = `M${f(points[0])}`;
  for (let i = 1; i < points.length; i += 1) {
    const [a, b] = [points[i - 1], points[i]];
    const middle = (a[1] + b[1]) / 2;
    path += `C${f([a[0], middle])} ${f([b[0], middle])} ${f(b)}`;
  }
  return path;
}
