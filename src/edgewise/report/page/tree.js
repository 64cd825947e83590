// The modules as a tree of rows, each with its share of a cost; or the hits of a search.

const MOST_HITS = 200;
const MOST_ROWS = 60; // that are open at first

class TreeView {
  constructor(host, events) {
    this.host = host;
    this.events = events;
    this.open = new Set();
    host.addEventListener("click", (e) => {
      const row = e.target.closest("[data-key]");
      if (!row) return;
      const item = this.method.byKey.get(row.dataset.key);
      if (e.target.closest(".twist")) this.toggle(item);
      else this.events.select(item, this.method);
    });
    host.addEventListener("keydown", (e) => this.key(e));
  }

  show(method, metric) {
    this.method = method;
    this.metric = metric;
    this.hits = null;
    this.open = new Set([method.root.key]);
    let level = [method.root];
    let rows = method.root.children.length;
    while (level.length) {
      level = level.flatMap((g) => g.children.filter((c) => c.isGroup));
      rows += level.reduce((a, g) => a + g.children.length, 0);
      if (rows > MOST_ROWS) break;
      for (const group of level) this.open.add(group.key);
    }
    this.draw();
  }

  find(hits) {
    this.hits = hits;
    this.draw();
  }

  toggle(item, to = !this.open.has(item.key)) {
    if (to) this.open.add(item.key);
    else this.open.delete(item.key);
    this.draw();
    this.focus(item);
  }

  select(item) {
    this.selected = item;
    if (item && !this.hits) for (const group of ancestors(item)) this.open.add(group.key);
    this.draw();
    const row = item && this.host.querySelector(`[data-key="${item.key}"]`);
    if (!row) return;
    const [top, bottom] = [row.offsetTop, row.offsetTop + row.offsetHeight];
    const pane = this.host.parentElement;
    if (top < pane.scrollTop) pane.scrollTop = top - 40;
    else if (bottom > pane.scrollTop + pane.clientHeight) pane.scrollTop = bottom - pane.clientHeight + 40;
  }

  focus(item) {
    const row = this.host.querySelector(`[data-key="${item.key}"]`);
    if (row) row.focus();
  }

  rows() {
    if (this.hits) return this.hits.slice(0, MOST_HITS).map((item) => [item, 0]);
    const found = [];
    const add = (item, depth) => {
      found.push([item, depth]);
      if (item.isGroup && this.open.has(item.key)) item.children.forEach((c) => add(c, depth + 1));
    };
    add(this.method.root, 0);
    return found;
  }

  draw() {
    const rows = this.rows();
    if (!rows.length) {
      this.host.innerHTML = `<p class="empty">Nothing matches. Try part of an operator, a module, a file, or “refused”.</p>`;
      return;
    }
    const held = this.host.contains(document.activeElement) && document.activeElement.dataset.key;
    const whole = this.method.root.sums[this.metric] || 1;
    const current = this.selected && rows.some(([item]) => item === this.selected) ? this.selected : rows[0][0];
    this.host.innerHTML = rows.map(([item, depth]) => this.row(item, depth, whole, item === current)).join("")
      + (this.hits && this.hits.length > MOST_HITS ? `<p class="empty">and ${count(this.hits.length - MOST_HITS)} more</p>` : "");
    if (held) this.host.querySelector(`[data-key="${held}"]`)?.focus({ preventScroll: true });
  }

  row(item, depth, whole, current) {
    const cost = item.sums[this.metric];
    const share = cost / whole;
    const expanded = item.isGroup && !this.hits ? ` aria-expanded="${this.open.has(item.key)}"` : "";
    const twist = item.isGroup && !this.hits ? `<span class="twist" aria-hidden="true"></span>` : `<span class="dot" style="background:${item.isGroup || item.kind !== "call" ? "transparent" : backendColour(item.backend)}"></span>`;
    const name = item.isGroup ? item.label : item.leaf && !this.hits ? leafName(item) : title(item);
    const type = item.isGroup ? shortType(item.type || "") : item.leaf ? title(item) : item.kind === "call" ? "" : subtitle(item);
    const where = this.hits ? `<span class="type">${esc(modulePath(item))}</span>` : `<span class="type">${esc(type)}</span>`;
    const warn = item.refused ? `<span class="badge" title="not delegated">${item.isGroup ? item.refused : "!"}</span>` : "";
    const bar = cost && this.metric !== "nodes" ? `<span class="cost">${esc(METRICS[this.metric].show(cost))}</span><span class="bar"><i style="width:${Math.max(2, 100 * share).toFixed(1)}%"></i></span>` : "";
    return `<div role="treeitem" class="row${this.selected === item ? " selected" : ""}" data-key="${item.key}" tabindex="${current ? 0 : -1}"
      aria-level="${depth + 1}" aria-selected="${this.selected === item}"${expanded} style="--depth:${Math.min(depth, 9)}">${twist}<span class="name">${esc(name)}</span>${where}${warn}${bar}</div>`;
  }

  key(e) {
    const row = e.target.closest("[data-key]");
    if (!row) return;
    const item = this.method.byKey.get(row.dataset.key);
    const all = [...this.host.querySelectorAll("[data-key]")];
    const at = all.indexOf(row);
    const go = (to) => to && to.focus();
    if (e.key === "ArrowDown") go(all[at + 1]);
    else if (e.key === "ArrowUp") go(all[at - 1]);
    else if (e.key === "Home") go(all[0]);
    else if (e.key === "End") go(all[all.length - 1]);
    else if (e.key === "ArrowRight" && item.isGroup && !this.open.has(item.key)) this.toggle(item, true);
    else if (e.key === "ArrowLeft" && item.isGroup && this.open.has(item.key)) this.toggle(item, false);
    else if (e.key === "ArrowLeft" && item.parent) this.focus(item.parent);
    else if (e.key === "Enter" || e.key === " ") this.events.select(item, this.method);
    else return;
    e.preventDefault();
  }
}
