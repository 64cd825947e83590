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
    const graph = new dagre.graphlib.Graph();
    // Network simplex draws shorter lines, but takes seconds for a hundred boxes.
    const ranker = item.children.length > 60 ? "longest-path" : "network-simplex";
    graph.setGraph({ rankdir: "TB", nodesep: BOX.gap, ranksep: BOX.rank, ranker });
    graph.setDefaultEdgeLabel(() => ({}));
    for (const child of item.children) graph.setNode(child.key, this.arrange(child, false));
    for (const pair of this.level.get(item.key) || []) {
      const [from, to] = pair.split("|");
      if (from === "in" || to === "out") {
        graph.setNode(from === "in" ? "in" : "out", { width: 1, height: 1 });
      }
      if (from !== to) graph.setEdge(from, to);
    }
    dagre.layout(graph);
    const { width, height: full } = graph.graph();
    // The edges from and to the border may be short.
    const up = graph.hasNode("in") ? BOX.rank - 12 : 0;
    const height = full - up - (graph.hasNode("out") ? BOX.rank - 12 : 0);
    const head = isRoot ? BOX.pad : BOX.head;
    const size = {
      width: Math.max(width + 2 * BOX.pad, isRoot ? 0 : boxWidth(item)),
      height: height + head + BOX.pad,
    };
    item.inner = { graph, head: head - up, size, state: this.state(item) };
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
    const { graph, head } = group.inner;
    const size = { width: graph.graph().width + 2 * BOX.pad };
    const own = this.boxes.get(group.key);
    const left = x + BOX.pad + (own ? (own.width - size.width) / 2 : 0);
    const top = y + head;
    for (const child of group.children) {
      const at = graph.node(child.key);
      const box = { item: child, x: left + at.x - at.width / 2, y: top + at.y - at.height / 2,
        width: at.width, height: at.height, open: child.isGroup && this.open.has(child.key) };
      this.boxes.set(child.key, box);
      if (box.open) this.place(child, box.x, box.y);
    }
    for (const edge of graph.edges()) {
      const points = graph.edge(edge).points.map((p) => [left + p.x, top + p.y]);
      if (edge.v === "in") points[0] = [points[0][0], y + (own ? BOX.head - 8 : 0)];
      if (edge.w === "out") points[points.length - 1][1] = y + (own ? own.height : 0);
      const ys = points.map((p) => p[1]);
      const xs = points.map((p) => p[0]);
      this.lines.push({ from: edge.v, to: edge.w, points, path: curve(points),
        x: Math.min(...xs), right: Math.max(...xs), y: Math.min(...ys), bottom: Math.max(...ys) });
    }
  }
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
