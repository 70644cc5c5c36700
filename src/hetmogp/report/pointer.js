// What a pointer does on a picture of a report: numbers under it, zoom by dragging.
class Pointer extends Picture {
  constructor(figure, about) {
    super(figure, about);
    const frame = this.frame;
    const place = (event) => {
      const box = frame.getBoundingClientRect();
      return [event.clientX - box.left, event.clientY - box.top];
    };
    let from = null, chosen = null;
    frame.addEventListener("pointermove", (event) => {
      const [px, py] = place(event);
      if (!from) { this.point(px, py); return; }
      const size = { width: Math.abs(px - from[0]), height: Math.abs(py - from[1]) };
      const corner = { x: Math.min(px, from[0]), y: Math.min(py, from[1]) };
      if (chosen) chosen.remove();
      chosen = add(frame.firstChild, "rect", { class: "zoom", ...corner, ...size });
    });
    frame.addEventListener("pointerleave", () => this.point(-1, -1));
    frame.addEventListener("pointerdown", (event) => {
      if (event.pointerType === "touch" || event.button) return;
      from = place(event);
      frame.setPointerCapture(event.pointerId);
      event.preventDefault();
    });
    frame.addEventListener("pointerup", (event) => {
      const to = place(event), began = from;
      if (chosen) chosen.remove();
      [from, chosen] = [null, null];
      if (began && Math.hypot(to[0] - began[0], to[1] - began[1]) > 8) this.zoom(began, to);
    });
    frame.addEventListener("dblclick", () => { this.view = {}; this.draw(); });
  }

  zoom(from, to) {
    const wanted = { x: [from[0], to[0]], y: [from[1], to[1]] };
    for (const side of ["x", "y"]) {
      const [a, b] = wanted[side].map(this.back[side]).sort((p, q) => p - q);
      if (this.about[side].kind !== "names" && Math.abs(wanted[side][1] - wanted[side][0]) > 8) {
        this.view[side] = [a, b];
      }
    }
    this.draw();
  }

  point(px, py) {
    const { left, right, top, bottom } = this.box;
    this.over.replaceChildren();
    const near = px > left - 8 && px < right + 8 && py > top - 8 && py < bottom + 8;
    const found = near ? this.under(px, py) : [];
    this.tip.hidden = !found.length;
    this.tip.replaceChildren();
    for (const text of found) html(this.tip, "div", "", text);
    if (!found.length) return;
    const half = this.tip.offsetWidth / 2, x = Math.min(Math.max(px, half + 2), this.width - half - 2);
    const above = this.frame.offsetTop + py - this.tip.offsetHeight - 14;
    this.tip.style.left = `${x - half}px`;
    this.tip.style.top = `${above > 0 ? above : this.frame.offsetTop + py + 16}px`;
  }

  // What is near the pointer, in words.
  under(px, py) {
    const words = [], { about } = this;
    let at = null;
    for (const mark of this.marks) {
      if (mark.kind === "heat") {
        const [j, i] = [nearest(mark.x, this.back.x(px)), nearest(mark.y, this.back.y(py))];
        const value = mark.z[i][j];
        words.push(`${said(about.x, mark.x[j])}, ${said(about.y, mark.y[i])}`);
        const tick = about.scale.ticks && about.scale.ticks.find(([k]) => k === value);
        words.push(`${mark.what}: ${tick ? tick[1] : number(value)}`);
        if (mark.more) words.push(`${mark.more[0]}: ${number(mark.more[1][i][j])}`);
      } else if (mark.kind === "dots" || mark.kind === "spans") {
        let best = 11, k = -1;
        mark.x.forEach((v, n) => {
          const far = mark.kind === "spans" && !mark.joined ? Math.abs(this.at.x(v) - px)
            : Math.hypot(this.at.x(v) - px, this.at.y(mark.y[n]) - py);
          if (far < best) [best, k] = [far, n];
        });
        if (k < 0) continue;
        add(this.over, "circle", { cx: this.at.x(mark.x[k]), cy: this.at.y(mark.y[k]), r: 6, fill: "none", stroke: "#1b1f24" });
        const name = mark.kind === "dots" ? "observed" : mark.group;
        words.push(mark.kind === "dots" && mark.shape === "diamond" ? mark.words[k] : `${name}: ${mark.words[k]}`);
        if (mark.kind === "spans" && about.x.kind === "names") words.unshift(said(about.x, mark.x[k]));
      } else if (mark.kind === "bars") {
        const [along, across] = mark.sideways ? [this.back.y(py), this.back.x(px)] : [this.back.x(px), this.back.y(py)];
        const k = Math.round(along);
        if (Math.abs(along - k) > 0.38 || !(mark.begin[k] <= across && across <= mark.end[k])) continue;
        words.push(said(mark.sideways ? about.y : about.x, k), mark.sideways ? mark.words[k] : `${mark.name}: ${mark.words[k]}`);
      } else if ((mark.kind === "line" || mark.kind === "band") && mark.words.length) {
        const k = nearest(mark.x, this.back.x(px));
        if (Math.abs(this.at.x(mark.x[k]) - px) > 30) continue;
        at = mark.x[k];
        if (mark.kind === "line") add(this.over, "circle", { cx: this.at.x(at), cy: this.at.y(mark.y[k]), r: 4, fill: mark.colour });
        words.push(mark.name ? `${mark.name}: ${mark.words[k]}` : mark.words[k]);
      }
    }
    if (at !== null) words.unshift(said(about.x, at));
    return words.slice(0, 12);
  }
}

const about = JSON.parse(document.getElementById("pictures").textContent);
for (const figure of document.querySelectorAll("figure")) {
  new Pointer(figure, about[figure.querySelector(".picture").id]);
}
