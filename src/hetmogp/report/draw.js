// Draws a picture of a report, described as JSON, as SVG: axes, marks and a legend whose entries
// hide and show. Text is only ever set as text.
const SVG = "http://www.w3.org/2000/svg";
const DASHES = { "": null, dash: "6 4", dot: "2 3", dashdot: "6 3 2 3" };

function add(parent, name, attributes = {}, text) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined) element.setAttribute(key, value);
  }
  if (text !== undefined) element.textContent = text;
  parent.appendChild(element);
  return element;
}

function html(parent, name, kind, text) {
  const element = document.createElement(name);
  if (kind) element.className = kind;
  if (text !== undefined) element.textContent = text;
  parent.appendChild(element);
  return element;
}

// -- a picture ----------------------------------------------------------------------------------

class Picture {
  constructor(figure, about) {
    this.about = about;
    this.hidden = new Set(about.marks.filter((m) => m.hidden).map((m) => this.key(m)));
    this.view = {};
    this.root = figure.querySelector(".picture");
    if (about.title) html(this.root, "div", "at", about.title);
    this.legend();
    this.frame = html(this.root, "div", "frame");
    this.tip = html(this.root, "div", "tip");
    this.tip.hidden = true;
    new ResizeObserver(() => {
      if (this.frame.clientWidth !== this.width) this.draw();
    }).observe(this.frame);
    this.draw();
  }

  key(mark) { return mark.group || `${mark.kind} ${mark.name}`; }
  get marks() { return this.about.marks.filter((m) => !this.hidden.has(this.key(m))); }

  legend() {
    const named = this.about.marks.filter((m) => m.name);
    if (named.length < 2) return;
    const list = html(this.root, "div", "legend");
    const entries = [];
    for (const mark of named) {
      const entry = html(list, "button");
      entry.type = "button";
      const sample = add(entry, "svg", { width: 22, height: 12, "aria-hidden": "true" });
      this.sample(sample, mark);
      html(entry, "span", "", mark.name);
      const show = () => entry.setAttribute("aria-pressed", !this.hidden.has(this.key(mark)));
      entries.push(show);
      entry.addEventListener("click", () => {
        const key = this.key(mark);
        this.hidden.has(key) ? this.hidden.delete(key) : this.hidden.add(key);
        entries.forEach((each) => each());
        this.draw();
      });
      show();
    }
  }

  sample(parent, mark) {
    const colour = Array.isArray(mark.colour) ? "#5b6470" : mark.colour;
    if (mark.kind === "band" || mark.kind === "bars" || mark.kind === "shade") {
      add(parent, "rect", { width: 22, height: 12, fill: colour, opacity: mark.opacity });
    } else if (mark.kind === "dots") {
      this.dot(parent, mark.shape, 11, 6, Math.max(mark.size, 5), mark.values ? "#5b6470" : colour);
    } else {
      const look = { stroke: colour, "stroke-width": Math.max(mark.width || 1.5, 1) };
      add(parent, "line", { x1: 0, x2: 22, y1: 6, y2: 6, ...look, "stroke-dasharray": DASHES[mark.dash || ""] });
      if (mark.kind === "spans") add(parent, "circle", { cx: 11, cy: 6, r: 3, fill: colour });
    }
  }

  // Where marks lie, or what the reader has zoomed to.
  domain(side) {
    if (this.view[side]) return this.view[side];
    const axis = this.about[side];
    if (axis.ends) return axis.ends;
    let low = Infinity, high = -Infinity;
    const see = (values) => {
      for (const v of values || []) if (v !== null) { low = Math.min(low, v); high = Math.max(high, v); }
    };
    let tight = side === "x";
    for (const mark of this.marks) {
      if (mark.kind === "heat") { see(edges(mark[side])); tight = true; }
      else if (mark.kind === "bars") {
        if (mark.sideways === (side === "x")) { see(mark.begin); see(mark.end); }
        else { see([-0.6, mark.begin.length - 0.4]); tight = true; }
      } else if (mark.kind === "shade") { if (side === "x") see([mark.begin, mark.end]); }
      else if (side === "x") see(mark.x);
      else { see(mark.y); see(mark.lower); see(mark.upper); }
    }
    if (low > high) [low, high] = [0, 1];
    if (axis.kind === "names" && !tight) return [low - 0.5, high + 0.5];
    if (axis.kind === "names" && axis.ticks) return [-0.5, axis.ticks.length - 0.5];
    const room = (high - low || Math.abs(high) || 1) * (tight ? (high > low ? 0 : 0.5) : 0.04);
    return [low - room, high + room];
  }

  draw() {
    const { about } = this;
    this.width = this.frame.clientWidth;
    if (!this.width) return;
    const height = about.height, [x, y] = [about.x, about.y];
    const domain = { x: this.domain("x"), y: this.domain("y") };
    const up = ticksOf(y, domain.y, height / 55);
    const wide = (text) => 6.8 * text.length;
    const longest = Math.max(0, ...up.map(([, text]) => wide(text)));
    const left = Math.min(longest, 0.38 * this.width) + (y.title ? 34 : 14);
    const bar = about.scale ? this.barWidth() : 0;
    const right = this.width - 10 - bar;
    let across = ticksOf(x, domain.x, (right - left) / (x.kind === "time" ? 105 : 80));
    const slot = (right - left) / Math.max(across.length, 1);
    const widest = Math.max(0, ...across.map(([, text]) => wide(text)));
    const turned = x.kind === "names" && widest > slot - 4;
    const below = (turned ? Math.min(0.72 * widest, 110) + 14 : 22) + (x.title ? 22 : 4);
    this.box = { left, right, top: about.scale ? 26 : 8, bottom: height - below };
    const { top, bottom } = this.box;
    this.at = {
      x: (v) => left + ((v - domain.x[0]) / (domain.x[1] - domain.x[0])) * (right - left),
      y: (v) => {
        const t = (v - domain.y[0]) / (domain.y[1] - domain.y[0]);
        return y.downwards ? top + t * (bottom - top) : bottom - t * (bottom - top);
      },
    };
    this.back = {
      x: (px) => domain.x[0] + ((px - left) / (right - left)) * (domain.x[1] - domain.x[0]),
      y: (px) => {
        const t = y.downwards ? (px - top) / (bottom - top) : (bottom - px) / (bottom - top);
        return domain.y[0] + t * (domain.y[1] - domain.y[0]);
      },
    };
    this.frame.replaceChildren();
    const svg = add(this.frame, "svg", { width: this.width, height, role: "img" });
    const caption = this.root.parentElement.querySelector("figcaption");
    if (caption) svg.setAttribute("aria-label", caption.textContent);
    const id = `clip-${this.root.id}`;
    const clip = add(add(svg, "defs"), "clipPath", { id });
    add(clip, "rect", { x: left, y: top, width: right - left, height: bottom - top });
    this.axes(svg, across, up, turned, wide);
    const inside = add(svg, "g", { "clip-path": `url(#${id})` });
    for (const mark of this.marks) this[mark.kind](inside, mark);
    if (about.scale) this.bar(svg);
    this.over = add(inside, "g");
  }

  axes(svg, across, up, turned, wide) {
    const { left, right, top, bottom } = this.box, line = { stroke: "#9aa3ad" };
    add(svg, "path", { d: `M${left} ${top}V${bottom}H${right}`, fill: "none", ...line });
    const cut = (text, room) => {
      const most = Math.max(3, Math.floor(room / 6.8));
      return text.length > most ? `${text.slice(0, most - 1)}…` : text;
    };
    let last = -Infinity;
    for (const [at, text] of across) {
      const px = this.at.x(at), half = turned ? 8 : wide(text) / 2 + 5;
      if (px - half < last) continue;
      last = px + half;
      add(svg, "line", { x1: px, x2: px, y1: bottom, y2: bottom + 5, ...line });
      const place = turned
        ? { transform: `translate(${px + 4} ${bottom + 12}) rotate(-40)`, "text-anchor": "end" }
        : { x: Math.min(px, right - Math.max(0, half - 12)), y: bottom + 19, "text-anchor": "middle" };
      const label = add(svg, "text", place, turned ? cut(text, 150) : text);
      if (turned) add(label, "title", {}, text);
    }
    last = Infinity;
    for (const [at, text] of [...up].sort((a, b) => this.at.y(b[0]) - this.at.y(a[0]))) {
      const px = this.at.y(at);
      if (px > last) continue;
      last = px - 14;
      add(svg, "line", { x1: left - 5, x2: left, y1: px, y2: px, ...line });
      const room = left - (this.about.y.title ? 30 : 10);
      const label = add(svg, "text", { x: left - 8, y: px + 4, "text-anchor": "end" }, cut(text, room));
      add(label, "title", {}, text);
    }
    const middle = (top + bottom) / 2, title = { "text-anchor": "middle", class: "title" };
    const height = Number(svg.getAttribute("height"));
    add(svg, "text", { x: (left + right) / 2, y: height - 5, ...title }, cut(this.about.x.title, right));
    add(svg, "text", { transform: `translate(13 ${middle}) rotate(-90)`, ...title },
      cut(this.about.y.title, bottom - top + 40));
  }

  // -- the scale of colours

  barTicks() {
    const { scale } = this.about;
    return ticksOf({ kind: "number", ticks: scale.ticks }, scale.ends, 5);
  }

  barWidth() {
    const longest = Math.max(0, ...this.barTicks().map(([, text]) => 6.8 * text.length));
    return Math.min(longest, 0.22 * this.width) + 36;
  }

  bar(svg) {
    const { scale } = this.about, { right, top, bottom } = this.box, parts = 64;
    const size = (bottom - top) / parts, [low, high] = scale.ends;
    const place = (v) => bottom - ((v - low) / (high - low || 1)) * (bottom - top);
    for (let k = 0; k < parts; k++) {
      const value = low + ((k + 0.5) / parts) * (high - low);
      const y = bottom - (k + 1) * size;
      add(svg, "rect", { x: right + 14, y, width: 12, height: size + 0.5, fill: css(colourAt(scale, value)) });
    }
    for (const [at, text] of this.barTicks()) {
      add(svg, "text", { x: right + 30, y: place(at) + 4 }, text);
    }
    add(svg, "text", { x: this.width - 4, y: 14, "text-anchor": "end", class: "title" }, scale.title);
  }

  // -- marks

  shade(parent, mark) {
    const [a, b] = [this.at.x(mark.begin), this.at.x(mark.end)], { top, bottom } = this.box;
    add(parent, "rect", { x: a, y: top, width: b - a, height: bottom - top, fill: mark.colour, opacity: mark.opacity });
  }

  path(x, y, steps) {
    let text = "", pen = false;
    x.forEach((v, k) => {
      if (v === null || y[k] === null) { pen = false; return; }
      const [px, py] = [this.at.x(v).toFixed(1), this.at.y(y[k]).toFixed(1)];
      if (steps && pen) {
        const middle = ((this.at.x(x[k - 1]) + this.at.x(v)) / 2).toFixed(1);
        text += `H${middle}V${py}H${px}`;
      } else text += `${pen ? "L" : "M"}${px} ${py}`;
      pen = true;
    });
    return text;
  }

  band(parent, mark) {
    const there = this.path(mark.x, mark.upper, mark.steps);
    const back = this.path([...mark.x].reverse(), [...mark.lower].reverse(), mark.steps);
    add(parent, "path", { d: `${there}${back.replace(/^M/, "L")}Z`, fill: mark.colour, opacity: mark.opacity });
  }

  line(parent, mark) {
    add(parent, "path", {
      d: this.path(mark.x, mark.y, mark.steps), fill: "none", stroke: mark.colour,
      "stroke-width": mark.width, opacity: mark.opacity, "stroke-dasharray": DASHES[mark.dash],
    });
    if (mark.dots) {
      mark.x.forEach((v, k) => add(parent, "circle",
        { cx: this.at.x(v), cy: this.at.y(mark.y[k]), r: 2.5, fill: mark.colour }));
    }
  }

  dot(parent, shape, x, y, size, colour, look = {}) {
    if (shape === "tick") {
      return add(parent, "line", { x1: x, x2: x, y1: y - size / 2 - 1, y2: y + size / 2 + 1, stroke: colour, ...look });
    }
    if (shape === "dot") return add(parent, "circle", { cx: x, cy: y, r: size * 0.7 + 0.4, fill: colour, ...look });
    const r = size * 0.8 + 1;
    const d = { up: `M${x - r} ${y + r}H${x + r}L${x} ${y - r}Z`, down: `M${x - r} ${y - r}H${x + r}L${x} ${y + r}Z`,
      diamond: `M${x - r} ${y}L${x} ${y - r}L${x + r} ${y}L${x} ${y + r}Z` }[shape];
    const open = shape !== "diamond" && !look.stroke;
    return add(parent, "path", { d, fill: open ? "none" : colour, stroke: colour, ...look });
  }

  dots(parent, mark) {
    const group = add(parent, "g", { opacity: mark.opacity, class: "dots" });
    const rim = this.about.scale ? { stroke: "#5b6470", "stroke-width": 0.7 } : {};
    mark.x.forEach((v, k) => {
      if (v === null || mark.y[k] === null) return;
      const own = Array.isArray(mark.colour) ? mark.colour[k] : mark.colour;
      const colour = mark.values ? css(colourAt(this.about.scale, mark.values[k])) : own;
      this.dot(group, mark.shape, this.at.x(v), this.at.y(mark.y[k]), mark.size, colour, rim);
    });
  }

  spans(parent, mark) {
    const look = { stroke: mark.colour, fill: "none" };
    if (mark.joined) add(parent, "path", { d: this.path(mark.x, mark.y), ...look, "stroke-dasharray": "2 3" });
    mark.x.forEach((v, k) => {
      const px = this.at.x(v), [a, b] = [this.at.y(mark.lower[k]), this.at.y(mark.upper[k])];
      add(parent, "path", { d: `M${px} ${a}V${b}M${px - 4} ${a}h8M${px - 4} ${b}h8`, ...look });
      add(parent, "circle", { cx: px, cy: this.at.y(mark.y[k]), r: 3.5, fill: mark.colour });
    });
  }

  heat(parent, mark) {
    const canvas = document.createElement("canvas");
    [canvas.width, canvas.height] = [mark.x.length, mark.y.length];
    const context = canvas.getContext("2d"), image = context.createImageData(canvas.width, canvas.height);
    const ex = edges(mark.x), ey = edges(mark.y), n = mark.y.length;
    mark.z.forEach((row, i) => row.forEach((value, j) => {
      const from = 4 * ((this.about.y.downwards ? i : n - 1 - i) * mark.x.length + j);
      image.data.set([...colourAt(this.about.scale, value), 255], from);
    }));
    context.putImageData(image, 0, 0);
    const [a, b] = [this.at.x(ex[0]), this.at.x(ex[1])];
    const [c, d] = [this.at.y(ey[0]), this.at.y(ey[1])];
    add(parent, "image", {
      href: canvas.toDataURL(), x: Math.min(a, b), y: Math.min(c, d), width: Math.abs(b - a),
      height: Math.abs(d - c), preserveAspectRatio: "none", style: "image-rendering: pixelated",
    });
    const room = Math.abs(b - a) / mark.x.length;
    if (room < 30) return;
    (mark.text || []).forEach((row, i) => row.forEach((text, j) => {
      const parts = colourAt(this.about.scale, mark.z[i][j]);
      const dark = 0.3 * parts[0] + 0.59 * parts[1] + 0.11 * parts[2] < 140;
      const place = { x: this.at.x(mark.x[j]), y: this.at.y(mark.y[i]) + 4, "text-anchor": "middle" };
      add(parent, "text", { ...place, fill: dark ? "#fff" : "#1b1f24" }, text);
    }));
  }

  rules(parent, mark) {
    const { left, right, top, bottom } = this.box;
    for (const at of mark.at) {
      add(parent, "path", { d: `M${left} ${this.at.y(at)}H${right}M${this.at.x(at)} ${top}V${bottom}`, stroke: "#000" });
    }
  }

  bars(parent, mark) {
    mark.begin.forEach((from, k) => {
      const [a, b] = mark.sideways ? [this.at.x(from), this.at.x(mark.end[k])] : [this.at.y(mark.end[k]), this.at.y(from)];
      const [c, d] = (mark.sideways ? [k - 0.38, k + 0.38].map(this.at.y) : [k - 0.38, k + 0.38].map(this.at.x)).sort((p, q) => p - q);
      const place = mark.sideways ? { x: a, y: c, width: b - a, height: d - c } : { x: c, y: a, width: d - c, height: b - a };
      add(parent, "rect", { ...place, fill: mark.colour });
    });
  }
}

// The outer edges of cells around the points of a regular grid.
function edges(values) {
  if (values.length < 2) return [values[0] - 0.5, values[0] + 0.5];
  const n = values.length, half = (values[n - 1] - values[0]) / (n - 1) / 2;
  return [values[0] - half, values[n - 1] + half];
}

function nearest(values, to) {
  let best = 0;
  values.forEach((v, k) => { if (Math.abs(v - to) < Math.abs(values[best] - to)) best = k; });
  return best;
}
