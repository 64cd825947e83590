// A method as a tree of groups and nodes, with sums; the same for every program on the page.

const METRICS = {
  us: { name: "Time", show: time, of: (n) => n.us || 0 },
  model: { name: "NPU cycles, edgewise's model", show: count, of: (n) => n.model || 0 },
  cycles: { name: "NPU cycles, compiler's", show: count, of: (n) => n.cycles || 0 },
  weights: { name: "Weights", show: bytes, of: (n) => n.weightBytes },
  macs: { name: "MACs", show: macs, of: (n) => n.macs || 0 },
  bytes: { name: "Bytes moved", show: bytes, of: (n) => n.bytes || 0 },
  nodes: { name: "Operators", show: count, of: (n) => (n.kind === "call" ? 1 : 0) },
};
const MOST_CHILDREN = 90; // more in one group are put into runs
const RUN = 40;

class Group {
  constructor(key, path, type, parent) {
    Object.assign(this, { key, path, type, parent, children: [], isGroup: true });
  }
  get label() {
    if (!this.path) return "model";
    const above = this.parent && this.parent.path;
    return above && this.path.startsWith(above + ".") ? this.path.slice(above.length + 1) : this.path;
  }
}

class Method {
  constructor(program, data) {
    this.program = program;
    this.data = data;
    this.name = data.name;
    this.nodes = data.nodes.map((n, index) => this.makeNode(n, index));
    this.byKey = new Map();
    this.root = this.makeTree();
    this.edges = data.edges.map(([from, to]) => [this.nodes[from], this.nodes[to]]);
    for (const node of this.nodes) Object.assign(node, { readers: [], sources: [] });
    for (const [from, to] of this.edges) {
      if (!from.readers.includes(to)) from.readers.push(to);
      if (!to.sources.includes(from)) to.sources.push(from);
    }
    this.sum(this.root);
    this.metrics = Object.keys(METRICS).filter((m) => this.root.sums[m] > 0);
    this.backends = [...new Set(this.calls.map((n) => n.backend))];
    this.noisy = this.nodes.some((n) => n.noise);
  }

  makeNode(n, index) {
    const node = { in: [], out: [], refusals: [], weights: [], notes: [], attributes: {}, ...n };
    const seen = new Map(node.weights.map((w) => [w[0], w[2]]));
    node.weightBytes = [...seen.values()].reduce((a, b) => a + b, 0);
    return Object.assign(node, { index, key: `n${index}`, backend: n.backend || "runtime" });
  }

  get calls() {
    return this.nodes.filter((n) => n.kind === "call");
  }

  // Groups by module; one that holds a single node is that node, one with a single group it.
  makeTree() {
    const groups = this.data.modules.map(([path, type], i) => new Group(`m${i}`, path, type, null));
    this.data.modules.forEach(([, , above], i) => {
      if (above >= 0) groups[i].parent = groups[above];
    });
    const placed = new Set([groups[0]]);
    const put = (group) => {
      if (placed.has(group)) return;
      placed.add(group);
      put(group.parent);
      group.parent.children.push(group);
    };
    for (const node of this.nodes) {
      const group = groups[node.kind === "call" ? node.module : 0];
      put(group);
      node.parent = group;
      group.children.push(node);
    }
    this.flatten(groups[0]);
    this.cut(groups[0]);
    this.register(groups[0]);
    return groups[0];
  }

  flatten(group) {
    group.children = group.children.map((child) => {
      if (!child.isGroup) return child;
      this.flatten(child);
      if (child.children.length > 1) return child;
      const only = child.children[0];
      if (only.isGroup) {
        child.children = only.children;
        for (const inner of child.children) inner.parent = child;
        return child;
      }
      only.leaf ||= child.path;
      only.leafType ||= child.type;
      only.parent = group;
      return only;
    });
  }

  cut(group) {
    for (const child of group.children) if (child.isGroup) this.cut(child);
    if (group.children.length <= MOST_CHILDREN) return;
    const runs = [];
    for (let start = 0; start < group.children.length; start += RUN) {
      const part = group.children.slice(start, start + RUN);
      const last = start + part.length;
      const run = new Group(`${group.key}r${start}`, `${start + 1}–${last}`, "", group);
      run.children = part;
      run.isRun = true;
      for (const child of part) child.parent = run;
      runs.push(run);
    }
    group.children = runs;
    this.cut(group);
  }

  register(group) {
    this.byKey.set(group.key, group);
    for (const child of group.children) {
      if (child.isGroup) this.register(child);
      else this.byKey.set(child.key, child);
    }
  }

  sum(item) {
    item.sums = {};
    item.places = {};
    if (!item.isGroup) {
      for (const [key, metric] of Object.entries(METRICS)) item.sums[key] = metric.of(item);
      if (item.kind === "call") item.places[item.backend] = 1;
      item.refused = item.kind === "call" && item.refusals.length ? 1 : 0;
      item.worst = item.noise && !item.noise.exact ? item.noise.db : Infinity;
      return;
    }
    item.refused = 0;
    item.worst = Infinity;
    const weights = new Map();
    const gather = (child) => {
      if (child.isGroup) child.children.forEach(gather);
      else for (const [name, , size] of child.weights) weights.set(name, size);
    };
    for (const child of item.children) {
      this.sum(child);
      for (const key of Object.keys(METRICS)) item.sums[key] = (item.sums[key] || 0) + child.sums[key];
      for (const [id, n] of Object.entries(child.places)) item.places[id] = (item.places[id] || 0) + n;
      item.refused += child.refused;
      item.worst = Math.min(item.worst, child.worst);
    }
    gather(item);
    item.sums.weights = [...weights.values()].reduce((a, b) => a + b, 0);
  }

  // The item that stands for one of another program: by module path, else by name.
  like(item) {
    for (const own of this.byKey.values()) {
      if (item.isGroup && own.isGroup && own.path === item.path && own.isRun === item.isRun) return own;
      if (!item.isGroup && !own.isGroup && own.name === item.name && own.op === item.op) return own;
    }
    return null;
  }

  search(text) {
    const words = text.toLowerCase().split(/\s+/).filter(Boolean);
    if (!words.length) return [];
    return this.nodes.filter((n) => {
      n.haystack ||= [n.name, n.op, n.leaf, n.leafType, modulePath(n), n.source, n.backend,
        backendName(n.backend), ...n.out, ...n.refusals.map((r) => `refused ${r.rule} ${r.got || ""}`)]
        .join(" ").toLowerCase();
      return words.every((w) => n.haystack.includes(w));
    });
  }
}

function modulePath(item) {
  if (item.leaf) return item.leaf;
  let at = item.isGroup ? item : item.parent;
  while (at && at.isRun) at = at.parent;
  return at ? at.path : "";
}

// The name of a leaf's module below the group that it is shown in.
function leafName(item) {
  let at = item.parent;
  while (at && at.isRun) at = at.parent;
  const above = at ? at.path : "";
  return above && item.leaf.startsWith(above + ".") ? item.leaf.slice(above.length + 1) : item.leaf;
}

function title(item) {
  if (item.isGroup) return item.label;
  if (item.kind === "output") return "output";
  return item.kind === "call" ? shortOp(item.op) : item.name;
}

function subtitle(item) {
  if (item.isGroup) return item.isRun ? "operators" : shortType(item.type || "");
  const type = (item.kind === "output" ? item.in : item.out)[0];
  return type ? shape(type) : "";
}

function ancestors(item) {
  const found = [];
  for (let at = item.parent; at; at = at.parent) found.unshift(at);
  return found;
}
