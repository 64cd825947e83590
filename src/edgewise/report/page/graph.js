// The drawing of one method: boxes and lines in an SVG that is panned and zoomed. Only what is
// near the view is in the document, so that thousands of boxes stay usable.

const AUTO_OPEN = 36; // boxes that are shown at first, at most

class GraphView {
  constructor(host, method, events) {
    this.method = method;
    this.events = events;
    this.open = new Set();
    this.scale = 1;
    this.x = 0;
    this.y = 0;
    this.colour = "backend";
    host.innerHTML = `<div class="graph" tabindex="0" role="group"
        aria-label="Graph of ${esc(method.program.name)}: arrow keys move, plus and minus zoom">
        <svg aria-hidden="true"><defs><marker id="tip-${host.id}" viewBox="0 0 8 8" refX="7" refY="4"
        markerWidth="7" markerHeight="7" orient="auto"><path d="M0 0L8 4L0 8z" class="arrow"/></marker></defs>
        <g class="world"></g></svg>
        <div class="zoom" role="group" aria-label="Zoom"><button type="button" data-zoom="in" aria-label="Zoom in">+</button>
        <button type="button" data-zoom="out" aria-label="Zoom out">−</button>
        <button type="button" data-zoom="fit" aria-label="Show all">Fit</button></div>
        <p class="caption">${esc(method.program.name)}</p></div>`;
    this.frame = host.querySelector(".graph");
    this.svg = host.querySelector("svg");
    this.world = host.querySelector(".world");
    this.marker = `tip-${host.id}`;
    this.openFirst();
    this.relayout();
    this.listen();
    new ResizeObserver(() => this.shown || this.start()).observe(this.frame);
    this.start();
  }

  start() {
    if (!this.frame.clientWidth) return;
    this.shown = true;
    this.fit(0.75);
  }

  // The levels from the top that have room, so that the first view says something.
  openFirst() {
    let level = [this.method.root];
    let visible = this.method.root.children.length;
    while (level.length) {
      level = level.flatMap((g) => g.children.filter((c) => c.isGroup));
      visible += level.reduce((a, g) => a + g.children.length, 0);
      if (visible > AUTO_OPEN) return;
      for (const group of level) this.open.add(group.key);
    }
  }

  relayout() {
    this.layout = new Layout(this.method, this.open);
    this.drawn = null;
  }

  get size() {
    return { width: this.frame.clientWidth || 600, height: this.frame.clientHeight || 480 };
  }

  // ---- where to look

  fit(least = 0.05) {
    const { width, height } = this.size;
    const whole = Math.min(width / (this.layout.width + 24), height / (this.layout.height + 24));
    this.scale = Math.max(Math.min(whole, 1), least);
    this.x = (width - this.layout.width * this.scale) / 2;
    const room = height - this.layout.height * this.scale;
    this.y = room > 0 ? room / 2 : 12;
    this.draw();
  }

  zoom(factor, cx = this.size.width / 2, cy = this.size.height / 2) {
    const scale = Math.min(2.5, Math.max(0.03, this.scale * factor));
    this.x = cx - ((cx - this.x) * scale) / this.scale;
    this.y = cy - ((cy - this.y) * scale) / this.scale;
    this.scale = scale;
    this.draw();
  }

  pan(dx, dy) {
    this.x += dx;
    this.y += dy;
    this.draw();
  }

  reveal(item, near) {
    let changed = false;
    for (const group of ancestors(item)) {
      if (group.parent && !this.open.has(group.key)) {
        this.open.add(group.key);
        changed = true;
      }
    }
    if (changed) this.relayout();
    const box = this.layout.boxes.get(item.key);
    if (!box) return this.draw();
    const { width, height } = this.size;
    const top = this.y + box.y * this.scale;
    const left = this.x + box.x * this.scale;
    const tall = Math.min(box.height, 120) * this.scale;
    const seen = top > 20 && top + tall < height - 20 && left > 0 && left + box.width * this.scale < width;
    const small = near && this.scale < 0.6;
    if (!seen || changed || small) {
      this.scale = Math.max(this.scale, 0.75);
      this.x = width / 2 - (box.x + box.width / 2) * this.scale;
      this.y = height / 2 - (box.y + Math.min(box.height, 200) / 2) * this.scale;
    }
    return this.draw();
  }

  toggle(group) {
    const before = this.layout.boxes.get(group.key);
    const at = [this.x + before.x * this.scale, this.y + before.y * this.scale];
    const middle = before.width / 2;
    if (this.open.has(group.key)) this.open.delete(group.key);
    else this.open.add(group.key);
    this.relayout();
    const after = this.layout.boxes.get(group.key);
    this.x = at[0] + (middle - after.width / 2 - after.x) * this.scale;
    this.y = at[1] - after.y * this.scale;
    this.draw();
  }

  openAll(all) {
    this.open = new Set();
    if (all) for (const one of this.method.byKey.values()) if (one.isGroup) this.open.add(one.key);
    this.relayout();
    this.fit(all ? 0.5 : 0.75);
  }

  // near: come close enough to read it.
  select(item, near) {
    this.selected = item;
    this.drawn = null;
    if (item) this.reveal(item, near);
    else this.draw();
  }

  // ---- drawing

  draw() {
    this.world.setAttribute("transform", `translate(${this.x},${this.y}) scale(${this.scale})`);
    const { width, height } = this.size;
    const view = { x: -this.x / this.scale, y: -this.y / this.scale };
    view.right = view.x + width / this.scale;
    view.bottom = view.y + height / this.scale;
    const far = this.scale < 0.3;
    const d = this.drawn;
    if (d && d.far === far && view.x >= d.x && view.y >= d.y && view.right <= d.right && view.bottom <= d.bottom) return;
    const mx = (view.right - view.x) / 2;
    const my = (view.bottom - view.y) / 2;
    const near = { x: view.x - mx, y: view.y - my, right: view.right + mx, bottom: view.bottom + my };
    this.drawn = { ...near, far };
    const parts = [];
    const meets = (x, y, right, bottom) => x < near.right && right > near.x && y < near.bottom && bottom > near.y;
    for (const box of this.layout.boxes.values()) {
      if (box.open && meets(box.x, box.y, box.x + box.width, box.y + box.height)) parts.push(this.group(box, far));
    }
    for (const line of this.layout.lines) {
      if (!meets(line.x, line.y, line.right + 1, line.bottom + 1)) continue;
      const end = far || line.to === "out" ? "" : ` marker-end="url(#${this.marker})"`;
      parts.push(`<path class="line${this.touches(line) ? " lit" : ""}" d="${line.path}"${end}/>`);
    }
    for (const box of this.layout.boxes.values()) {
      if (!box.open && meets(box.x, box.y, box.x + box.width, box.y + box.height)) parts.push(this.box(box, far));
    }
    this.world.innerHTML = parts.join("");
  }

  touches(line) {
    return this.selected && (line.from === this.selected.key || line.to === this.selected.key);
  }

  classes(item) {
    let found = item.isGroup ? "group" : `node ${esc(item.kind)}`;
    if (this.selected === item) found += " selected";
    if (!item.isGroup && item.refused) found += " refused";
    return found;
  }

  group(box, far) {
    const { item, x, y, width, height } = box;
    const text = far ? "" : `<text class="name" x="30" y="22">${esc(clip(title(item), Math.floor(width / 10)))}</text>
      <path class="twist" d="M12 14l5 6 5-6"/>`;
    return `<g class="box open ${this.classes(item)}" data-key="${item.key}" transform="translate(${x},${y})">
      <rect width="${width}" height="${height}" rx="10"/><g data-twist="1"><rect class="hit" width="${width}" height="30"/>${text}</g></g>`;
  }

  box(box, far) {
    const { item, x, y, width, height } = box;
    const fill = this.fill(item);
    const room = Math.floor((width - 34) / 7);
    let text = "";
    if (!far) {
      const left = item.isGroup ? 30 : 16;
      const mark = item.refused ? `<text class="warn" x="${width - 12}" y="20" text-anchor="end">${item.isGroup ? item.refused : "!"}</text>` : "";
      text = `<text class="name" x="${left}" y="20">${esc(clip(title(item), room))}</text>
        <text class="sub" x="${left}" y="36">${esc(clip(this.second(item), room + 4))}</text>${mark}
        ${item.isGroup ? `<path class="twist" d="M13 12l6 5-6 5"/>` : ""}`;
    }
    const hit = item.isGroup ? `<rect class="hit" data-twist="1" width="28" height="${height}"/>` : "";
    return `<g class="box ${this.classes(item)}" data-key="${item.key}" transform="translate(${x},${y})">
      <rect class="face" width="${width}" height="${height}" rx="8" style="${fill}"/>${this.strip(item, height)}${text}${hit}</g>`;
  }

  second(item) {
    if (this.colour !== "backend" && METRICS[this.colour] && item.sums[this.colour]) {
      return METRICS[this.colour].show(item.sums[this.colour]);
    }
    if (this.colour === "noise" && item.worst < Infinity) return `${item.worst.toFixed(1)} dB`;
    return subtitle(item);
  }

  // Shares of backends at the left edge.
  strip(item, height) {
    const total = Object.values(item.places).reduce((a, b) => a + b, 0);
    let at = 0;
    return Object.entries(item.places).map(([id, n]) => {
      const part = ((height - 12) * n) / total;
      const bar = `<rect x="5" y="${(6 + at).toFixed(1)}" width="4" height="${part.toFixed(1)}" rx="2" style="fill:${backendColour(id)}"/>`;
      at += part;
      return bar;
    }).join("");
  }

  fill(item) {
    if (!item.isGroup && item.kind !== "call") return "";
    if (this.colour === "backend") {
      const main = Object.entries(item.places).sort((a, b) => b[1] - a[1])[0];
      return main ? `fill:color-mix(in oklab, ${backendColour(main[0])} 13%, var(--surface))` : "";
    }
    const share = this.share(item);
    return `fill:color-mix(in oklab, var(--heat) ${Math.round(78 * share)}%, var(--surface))`;
  }

  share(item) {
    if (this.colour === "noise") return item.worst === Infinity ? 0 : Math.min(1, Math.max(0, (60 - item.worst) / 50));
    const whole = this.method.root.sums[this.colour] || 1;
    return Math.sqrt(item.sums[this.colour] / whole);
  }

  // ---- hands

  listen() {
    const frame = this.frame;
    const pointers = new Map();
    let moved = 0;
    frame.addEventListener("pointerdown", (e) => {
      if (e.target.closest("button")) return;
      pointers.set(e.pointerId, [e.clientX, e.clientY]);
      moved = 0;
    });
    frame.addEventListener("pointermove", (e) => {
      const last = pointers.get(e.pointerId);
      if (!last) return;
      const others = [...pointers].filter(([id]) => id !== e.pointerId).map(([, p]) => p);
      if (others.length) {
        const far = (p) => Math.hypot(p[0] - others[0][0], p[1] - others[0][1]) || 1;
        const box = frame.getBoundingClientRect();
        const [cx, cy] = [(e.clientX + others[0][0]) / 2 - box.x, (e.clientY + others[0][1]) / 2 - box.y];
        this.zoom(far([e.clientX, e.clientY]) / far(last), cx, cy);
      } else this.pan(e.clientX - last[0], e.clientY - last[1]);
      moved += Math.abs(e.clientX - last[0]) + Math.abs(e.clientY - last[1]);
      if (moved > 4 && !frame.hasPointerCapture(e.pointerId)) frame.setPointerCapture(e.pointerId);
      pointers.set(e.pointerId, [e.clientX, e.clientY]);
    });
    for (const kind of ["pointerup", "pointercancel"]) frame.addEventListener(kind, (e) => pointers.delete(e.pointerId));
    frame.addEventListener("click", (e) => {
      const button = e.target.closest("[data-zoom]");
      if (button) return { in: () => this.zoom(1.3), out: () => this.zoom(1 / 1.3), fit: () => this.fit() }[button.dataset.zoom]();
      if (moved > 4) return undefined;
      const box = e.target.closest("[data-key]");
      const item = box && this.method.byKey.get(box.dataset.key);
      // By `detail`: the first click draws anew, so that a second one never makes a dblclick.
      if (item && item.isGroup && (e.detail === 2 || e.target.closest("[data-twist]"))) return this.toggle(item);
      return this.events.select(item || null, this.method, this);
    });
    frame.addEventListener("wheel", (e) => {
      e.preventDefault();
      const box = frame.getBoundingClientRect();
      if (e.ctrlKey || e.metaKey || Math.abs(e.deltaY) >= 90) this.zoom(Math.exp(-e.deltaY / 500), e.clientX - box.x, e.clientY - box.y);
      else this.pan(-e.deltaX, -e.deltaY);
    }, { passive: false });
    const step = { ArrowLeft: [60, 0], ArrowRight: [-60, 0], ArrowUp: [0, 60], ArrowDown: [0, -60] };
    frame.addEventListener("keydown", (e) => {
      if (e.target !== frame) return;
      if (step[e.key]) this.pan(...step[e.key]);
      else if (e.key === "+" || e.key === "=") this.zoom(1.3);
      else if (e.key === "-") this.zoom(1 / 1.3);
      else if (e.key === "0") this.fit();
      else return;
      e.preventDefault();
    });
  }
}
