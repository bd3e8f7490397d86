// Draws the runs of a series on a canvas, with a band of their deviation, and lets one move, zoom and pick.
"use strict";
window.PerfkitChart = class {
  static SHAPES = ["circle", "square", "triangle", "diamond", "cross"];
  static #LEFT = 76;
  static #RIGHT = 14;
  static #TOP = 40;
  static #BOTTOM = 30;
  // An axis covers at least this share of the values: scatter of half a percent must not look like mountains.
  static #LEAST_RANGE = 0.04;
  static #FEWEST = 4;

  #canvas; #map; #listener; #data = null; #view = [0, 1]; #range = [0, 1]; #hover = -1; #picked = [];
  #colours = {}; #frame = 0; #zero = false; #off = new Set(); #labels = [];
  #pointers = new Map(); #dragged = false; #pinch = null; #overview = null; #size = null;

  // `listener` gets what people do: hover(run or -1, x, y), pick(run), step(id).
  constructor(canvas, map, listener) {
    this.#canvas = canvas;
    this.#map = map;
    this.#listener = listener;
    this.#readColours();
    document.addEventListener("perfkit-theme", () => { this.#readColours(); this.redraw(); });
    new ResizeObserver(() => { this.#size = null; this.#overview = null; this.redraw(); }).observe(canvas);
    this.#listen();
  }

  // `data`: columns x (ascending), byTime, mean, low, high, env, version, run; steps, levels, borders, likely, releases, same, repeated; texts.
  show(data) {
    this.#data = data;
    this.#hover = -1;
    this.#overview = null;
    this.#view = this.#whole();
    this.redraw();
  }

  set zero(from) { this.#zero = from; this.redraw(); }
  set off(environments) { this.#off = environments; this.#overview = null; this.redraw(); }
  set picked(runs) { this.#picked = runs; this.redraw(); }
  get view() { return [...this.#view]; }

  redraw() {
    if (this.#frame) return;
    this.#frame = requestAnimationFrame(() => { this.#frame = 0; this.draw(); });
  }

  zoom(factor, about = (this.#view[0] + this.#view[1]) / 2) {
    const [low, high] = this.#view;
    this.#look(about - (about - low) * factor, about + (high - about) * factor);
  }

  move(share) {
    const by = share * (this.#view[1] - this.#view[0]);
    this.#look(this.#view[0] + by, this.#view[1] + by);
  }

  all() { this.#view = this.#whole(); this.redraw(); }

  // Shows some runs around a place, all of it being on screen.
  zoomTo(place, runs = 60) {
    const { x } = this.#data;
    const last = x.length - 1;
    const from = Math.max(0, place - runs), to = Math.min(last, place + runs);
    const free = (x[to] - x[from]) * 0.03 || 0.5;
    this.#look(x[from] - free, x[to] + free);
  }

  #whole() {
    const { x } = this.#data;
    const free = (x[x.length - 1] - x[0]) * 0.015 || 0.5;
    return [x[0] - free, x[x.length - 1] + free];
  }

  #look(low, high) {
    const [first, last] = this.#whole();
    const least = Math.min(this.#data.least, last - first);
    const width = Math.min(Math.max(high - low, least), last - first);
    const middle = (low + high) / 2;
    const start = Math.min(Math.max(middle - width / 2, first), last - width);
    this.#view = [start, start + width];
    this.redraw();
  }

  #readColours() {
    const style = getComputedStyle(document.documentElement);
    for (const name of ["paper", "card", "ink", "dim", "line", "calm", "band", "worse", "better", "warn", "focus"]) {
      this.#colours[name] = style.getPropertyValue(`--${name}`).trim();
    }
    this.#overview = null;
  }

  // Colours of environments: the first is that of the line; shapes distinguish them as well.
  colour(environment) {
    const others = [this.#colours.calm, "#b07c12", "#9268bd", "#1f9a93", "#a9705a"];
    return others[environment % others.length];
  }

  #place(x) {
    const { width } = this.#area();
    return window.PerfkitChart.#LEFT + ((x - this.#view[0]) / (this.#view[1] - this.#view[0])) * width;
  }

  #xAt(pixel) {
    const { width } = this.#area();
    return this.#view[0] + ((pixel - window.PerfkitChart.#LEFT) / width) * (this.#view[1] - this.#view[0]);
  }

  #height(value) {
    const { height } = this.#area();
    const [low, high] = this.#range;
    const share = Math.min(Math.max((value - low) / (high - low), -0.02), 1.02);
    return window.PerfkitChart.#TOP + (1 - share) * height;
  }

  // The rectangle of the runs. It is kept, since asking a page for sizes once a run would take most of the time.
  #area() {
    if (!this.#size) {
      const { clientWidth, clientHeight } = this.#canvas;
      const own = window.PerfkitChart;
      this.#size = {
        width: Math.max(clientWidth - own.#LEFT - own.#RIGHT, 10),
        height: Math.max(clientHeight - own.#TOP - own.#BOTTOM, 10),
      };
    }
    return this.#size;
  }

  // Returns the first run that is not left of x.
  #from(x) {
    const all = this.#data.x;
    let low = 0, high = all.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (all[middle] < x) low = middle + 1; else high = middle;
    }
    return low;
  }

  #sized(canvas) {
    const ratio = window.devicePixelRatio || 1;
    const width = Math.round(canvas.clientWidth * ratio), height = Math.round(canvas.clientHeight * ratio);
    if (canvas.width !== width || canvas.height !== height) { canvas.width = width; canvas.height = height; }
    const context = canvas.getContext("2d");
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, canvas.clientWidth, canvas.clientHeight);
    return context;
  }

  draw() {
    const data = this.#data;
    if (!data || !this.#canvas.clientWidth) return;
    const own = window.PerfkitChart;
    const context = this.#sized(this.#canvas);
    const { width, height } = this.#area();
    const first = Math.max(this.#from(this.#view[0]) - 1, 0);
    const last = Math.min(this.#from(this.#view[1]) + 1, data.x.length);
    this.#range = this.#visibleRange(first, last);
    context.font = "12px system-ui, sans-serif";
    this.#drawAxes(context, width, height);
    context.save();
    context.beginPath();
    context.rect(own.#LEFT, 0, width, own.#TOP + height);
    context.clip();
    const columns = this.#columns(first, last, this.#view);
    this.#drawReleases(context, height);
    this.#drawBand(context, columns);
    this.#drawLine(context, columns);
    this.#drawLevels(context);
    this.#drawRuns(context, first, last, width);
    this.#drawSteps(context, height);
    this.#drawChosen(context, height);
    context.restore();
    this.#drawMap();
  }

  #visibleRange(first, last) {
    const { mean, low, high, env } = this.#data;
    const some = this.#off.size > 0 ? this.#off : null;
    let bottom = Infinity, top = -Infinity, least = Infinity, most = -Infinity;
    for (let run = first; run < last; run += 1) {
      if ((some && some.has(env[run])) || Number.isNaN(mean[run])) continue;
      if (mean[run] < bottom) bottom = mean[run];
      if (mean[run] > top) top = mean[run];
      if (low[run] < least) least = low[run];
      if (high[run] > most) most = high[run];
    }
    if (bottom > top) return [0, 1];
    const own = window.PerfkitChart;
    const largest = Math.max(Math.abs(bottom), Math.abs(top)) || 1;
    // A band widens the axis, but only so far that the means still have a third of it.
    const reach = Math.max(top - bottom, (own.#LEAST_RANGE * largest) / 2);
    least = Math.max(least, bottom - reach);
    most = Math.min(most, top + reach);
    const lacking = Math.max(0, own.#LEAST_RANGE * largest - (most - least)) / 2;
    const free = 0.07 * (most - least + 2 * lacking);
    if (this.#zero) return [Math.min(0, least), Math.max(0, most) + free];
    return [least - lacking - free, most + lacking + free];
  }

  // Puts runs that share a column of pixels together, where the axis goes from one end of a view to the other.
  #columns(first, last, [start, end]) {
    const { x, mean, low, high, env, version } = this.#data;
    const left = window.PerfkitChart.#LEFT, wide = this.#area().width / (end - start);
    const some = this.#off.size > 0 ? this.#off : null;
    const columns = [];
    let now = null;
    for (let run = first; run < last; run += 1) {
      if ((some && some.has(env[run])) || Number.isNaN(mean[run])) continue;
      const at = left + (x[run] - start) * wide;
      if (now && Math.abs(at - now.at) < 1 && now.version === version[run]) {
        if (mean[run] < now.bottom) now.bottom = mean[run];
        if (mean[run] > now.top) now.top = mean[run];
        if (low[run] < now.low) now.low = low[run];
        if (high[run] > now.high) now.high = high[run];
        now.last = mean[run];
      } else {
        now = {
          at, version: version[run], first: mean[run], last: mean[run],
          bottom: mean[run], top: mean[run], low: low[run], high: high[run],
        };
        columns.push(now);
      }
    }
    return columns;
  }

  #stretches(columns) {
    const found = [];
    for (const column of columns) {
      const before = found[found.length - 1];
      if (before && before[0].version === column.version) before.push(column); else found.push([column]);
    }
    return found;
  }

  #drawBand(context, columns) {
    context.fillStyle = this.#colours.band;
    for (const stretch of this.#stretches(columns)) {
      context.beginPath();
      if (stretch.length === 1) {
        const [only] = stretch;
        context.rect(only.at - 3, this.#height(only.high), 6, this.#height(only.low) - this.#height(only.high));
      }
      for (const column of stretch) context.lineTo(column.at, this.#height(column.high));
      for (let place = stretch.length - 1; place >= 0; place -= 1) {
        context.lineTo(stretch[place].at, this.#height(stretch[place].low));
      }
      context.fill();
    }
  }

  #drawLine(context, columns) {
    context.strokeStyle = this.#colours.calm;
    context.lineWidth = 1.4;
    context.lineJoin = "round";
    for (const stretch of this.#stretches(columns)) {
      context.beginPath();
      for (const column of stretch) {
        context.lineTo(column.at, this.#height(column.first));
        if (column.bottom !== column.top) {
          context.lineTo(column.at, this.#height(column.bottom));
          context.lineTo(column.at, this.#height(column.top));
          context.lineTo(column.at, this.#height(column.last));
        }
      }
      context.stroke();
    }
  }

  #drawLevels(context) {
    context.strokeStyle = this.#colours.ink;
    context.globalAlpha = 0.55;
    context.lineWidth = 1.5;
    for (const level of this.#data.levels) {
      context.beginPath();
      context.moveTo(this.#place(level.from), this.#height(level.value));
      context.lineTo(this.#place(level.to), this.#height(level.value));
      context.stroke();
    }
    context.globalAlpha = 1;
  }

  #drawRuns(context, first, last, width) {
    const { x, mean, env, repeated } = this.#data;
    if ((last - first) * 5 > width) return;
    for (let run = first; run < last; run += 1) {
      if (this.#off.has(env[run]) || Number.isNaN(mean[run])) continue;
      this.#mark(context, this.#place(x[run]), this.#height(mean[run]), env[run], 3.2, false, repeated.has(run));
    }
  }

  #mark(context, x, y, environment, size, filled, isGrey = false) {
    const shape = window.PerfkitChart.SHAPES[environment % window.PerfkitChart.SHAPES.length];
    context.beginPath();
    if (shape === "circle") context.arc(x, y, size, 0, 7);
    if (shape === "square") context.rect(x - size, y - size, 2 * size, 2 * size);
    if (shape === "triangle") { context.moveTo(x, y - size * 1.3); context.lineTo(x + size * 1.2, y + size); context.lineTo(x - size * 1.2, y + size); }
    if (shape === "diamond") { context.moveTo(x, y - size * 1.4); context.lineTo(x + size * 1.4, y); context.lineTo(x, y + size * 1.4); context.lineTo(x - size * 1.4, y); }
    if (shape === "cross") { context.moveTo(x - size, y - size); context.lineTo(x + size, y + size); context.moveTo(x + size, y - size); context.lineTo(x - size, y + size); }
    context.closePath();
    context.lineWidth = 1.6;
    context.strokeStyle = isGrey ? this.#colours.dim : this.colour(environment);
    context.fillStyle = isGrey ? this.#colours.dim : filled ? this.colour(environment) : this.#colours.paper;
    context.fill();
    context.stroke();
  }

  #drawSteps(context, height) {
    const top = window.PerfkitChart.#TOP;
    this.#labels = [];
    let free = -Infinity;
    context.textBaseline = "middle";
    for (const step of this.#data.steps) {
      const x = this.#place(step.x);
      if (x < window.PerfkitChart.#LEFT - 1 || x > this.#canvas.clientWidth) continue;
      const colour = step.quiet ? this.#colours.dim : step.worse ? this.#colours.worse : this.#colours.better;
      context.strokeStyle = colour;
      context.lineWidth = 1.4;
      context.setLineDash([5, 4]);
      context.beginPath();
      context.moveTo(x, top - 8);
      context.lineTo(x, top + height);
      context.stroke();
      context.setLineDash([]);
      context.font = "600 12px system-ui, sans-serif";
      const wide = context.measureText(step.text).width + 12;
      const left = Math.min(x - 2, this.#canvas.clientWidth - window.PerfkitChart.#RIGHT - wide);
      if (left < free) continue;
      free = left + wide + 4;
      context.fillStyle = colour;
      context.beginPath();
      context.roundRect(left, top - 28, wide, 20, 4);
      context.fill();
      context.fillStyle = this.#colours.paper;
      context.textAlign = "left";
      context.fillText(step.text, left + 6, top - 17.5);
      this.#labels.push({ left, right: left + wide, top: top - 28, bottom: top - 8, id: step.id });
    }
    context.font = "12px system-ui, sans-serif";
  }

  #drawReleases(context, height) {
    const top = window.PerfkitChart.#TOP;
    context.fillStyle = this.#colours.dim;
    context.strokeStyle = this.#colours.line;
    context.lineWidth = 1;
    context.textBaseline = "alphabetic";
    for (const one of [...this.#data.borders, ...this.#data.likely, ...this.#data.releases]) {
      const x = this.#place(one.x);
      if (x < window.PerfkitChart.#LEFT - 1 || x > this.#canvas.clientWidth) continue;
      context.setLineDash(one.border ? [1, 3] : []);
      context.strokeStyle = one.border ? this.#colours.warn : this.#colours.line;
      context.beginPath();
      context.moveTo(x, top);
      context.lineTo(x, top + height);
      context.stroke();
      context.setLineDash([]);
    }
    this.#label(context, this.#data.borders, this.#colours.warn, top + 12);
    this.#label(context, this.#data.likely, this.#colours.warn, top + height - 24);
    this.#label(context, this.#data.releases, this.#colours.dim, top + height - 6);
  }

  // Writes texts beside their places; one that would cover the one before it is left out.
  #label(context, marks, colour, y) {
    let free = -Infinity;
    context.fillStyle = colour;
    for (const one of [...marks].sort((a, b) => a.x - b.x)) {
      const x = this.#place(one.x);
      const wide = context.measureText(one.text).width;
      if (x < window.PerfkitChart.#LEFT - 1 || x < free || x > this.#canvas.clientWidth - 20) continue;
      const atEnd = x + wide + 6 > this.#canvas.clientWidth - window.PerfkitChart.#RIGHT;
      if (atEnd && x - wide - 6 < free) continue;
      context.textAlign = atEnd ? "right" : "left";
      let text = one.text;
      const room = x - 4 - window.PerfkitChart.#LEFT;
      while (atEnd && text && context.measureText(`${text}\u2026`).width > room && context.measureText(one.text).width > room) text = text.slice(0, -1);
      context.fillText(text === one.text ? text : `${text}\u2026`, atEnd ? x - 4 : x + 4, y);
      free = x + (atEnd ? 0 : wide + 12);
    }
  }

  #drawChosen(context, height) {
    const { x, mean, low, high, env } = this.#data;
    const top = window.PerfkitChart.#TOP;
    if (this.#hover >= 0) {
      const at = this.#place(x[this.#hover]);
      context.strokeStyle = this.#colours.dim;
      context.lineWidth = 1;
      context.beginPath();
      context.moveTo(at, top);
      context.lineTo(at, top + height);
      context.stroke();
      context.lineWidth = 2;
      context.beginPath();
      context.moveTo(at, this.#height(low[this.#hover]));
      context.lineTo(at, this.#height(high[this.#hover]));
      context.stroke();
      this.#mark(context, at, this.#height(mean[this.#hover]), env[this.#hover], 4.5, true);
    }
    this.#picked.forEach((run, number) => {
      const place = this.#data.run.indexOf(run);
      if (place < 0) return;
      const at = this.#place(x[place]), y = this.#height(mean[place]);
      context.beginPath();
      context.arc(at, y, 9, 0, 7);
      context.fillStyle = this.#colours.ink;
      context.fill();
      context.fillStyle = this.#colours.paper;
      context.font = "700 11px system-ui, sans-serif";
      context.textAlign = "center";
      context.textBaseline = "middle";
      context.fillText("AB"[number], at, y + 0.5);
    });
    context.font = "12px system-ui, sans-serif";
  }

  #drawAxes(context, width, height) {
    const own = window.PerfkitChart;
    const [low, high] = this.#range;
    context.textBaseline = "middle";
    context.textAlign = "right";
    context.lineWidth = 1;
    const ticks = own.ticks(low, high, Math.max(3, Math.round(height / 60)));
    const texts = this.#data.valueTexts(ticks);
    ticks.forEach((value, number) => {
      const y = this.#height(value);
      context.strokeStyle = this.#colours.line;
      context.beginPath();
      context.moveTo(own.#LEFT, y);
      context.lineTo(own.#LEFT + width, y);
      context.stroke();
      context.fillStyle = this.#colours.dim;
      context.fillText(texts[number], own.#LEFT - 8, y);
    });
    // Commits that are not measured, but run the same code as that of a run.
    context.fillStyle = this.#colours.dim;
    for (const x of this.#data.same) {
      if (x >= this.#view[0] && x <= this.#view[1]) context.fillRect(this.#place(x) - 2, own.#TOP + height + 1, 4, 4);
    }
    context.textBaseline = "alphabetic";
    if (this.#data.byTime) this.#drawDays(context, width, height); else this.#drawCommits(context, height);
  }

  #drawDays(context, width, height) {
    const own = window.PerfkitChart, span = this.#view[1] - this.#view[0];
    const wide = context.measureText(this.#data.placeText(this.#view[0], span)).width + 24;
    const room = Math.max(1, Math.floor(width / wide));
    let before = "";
    for (let number = 0; number < room; number += 1) {
      const share = room > 1 ? number / (room - 1) : 0.5, x = this.#view[0] + share * span;
      const text = this.#data.placeText(x, span);
      context.textAlign = share === 0 ? "left" : share === 1 ? "right" : "center";
      if (text && text !== before) context.fillText(text, this.#place(x), own.#TOP + height + 20);
      before = text;
    }
  }

  // Names runs below them: the first after each step, the last one, and others where there is room.
  #drawCommits(context, height) {
    const own = window.PerfkitChart, { x, steps, placeText } = this.#data;
    const first = this.#from(this.#view[0]), last = this.#from(this.#view[1]) - 1;
    const span = this.#view[1] - this.#view[0], taken = [];
    if (last < first) return;
    const half = context.measureText(placeText(x[last], span)).width / 2;
    const apart = Math.max(Math.ceil((2 * half + 16) / Math.max(this.#place(x[first] + 1) - this.#place(x[first]), 1e-9)), 1);
    const others = [];
    for (let run = last; run >= first; run -= apart) others.push(run);
    context.textAlign = "center";
    for (const run of [...steps.map((step) => this.#from(step.x)), ...others]) {
      const at = this.#place(x[run]), middle = Math.min(Math.max(at, half), this.#canvas.clientWidth - half);
      if (run < first || run > last || taken.some((one) => Math.abs(one - middle) < 2 * half + 8)) continue;
      taken.push(middle);
      context.fillRect(at - 0.5, own.#TOP + height + 1, 1, 6);
      context.fillText(placeText(x[run], span), middle, own.#TOP + height + 20);
    }
  }

  // Returns round values in a range, about as many as asked for.
  static ticks(low, high, about) {
    const rough = (high - low) / about;
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((each) => each >= rough * 0.999);
    const found = [];
    for (let number = Math.ceil(low / step); number * step <= high; number += 1) found.push(number * step);
    return found;
  }

  // The small chart of all runs is drawn once, and copied until something changes it.
  #drawMap() {
    const canvas = this.#map;
    if (!canvas.clientWidth) return;
    const data = this.#data;
    const own = window.PerfkitChart;
    const { width } = this.#area();
    const [first, last] = this.#whole();
    const place = (x) => own.#LEFT + ((x - first) / (last - first)) * width;
    if (!this.#overview) {
      const ratio = window.devicePixelRatio || 1;
      const drawn = document.createElement("canvas");
      drawn.width = Math.round(canvas.clientWidth * ratio);
      drawn.height = Math.round(canvas.clientHeight * ratio);
      const context = drawn.getContext("2d");
      context.scale(ratio, ratio);
      const columns = this.#columns(0, data.x.length, [first, last]);
      const bottom = Math.min(...columns.map((one) => one.bottom)), top = Math.max(...columns.map((one) => one.top));
      const y = (value) => canvas.clientHeight - 6 - ((value - bottom) / (top - bottom || 1)) * (canvas.clientHeight - 12);
      context.strokeStyle = this.#colours.calm;
      for (const stretch of this.#stretches(columns)) {
        context.beginPath();
        for (const column of stretch) { context.lineTo(column.at, y(column.bottom)); context.lineTo(column.at, y(column.top)); }
        context.stroke();
      }
      this.#overview = drawn;
    }
    const context = this.#sized(canvas);
    context.fillStyle = this.#colours.card;
    context.fillRect(own.#LEFT, 0, width, canvas.clientHeight);
    context.drawImage(this.#overview, 0, 0, canvas.clientWidth, canvas.clientHeight);
    const [from, to] = this.#view.map(place);
    context.fillStyle = this.#colours.paper;
    context.globalAlpha = 0.7;
    context.fillRect(own.#LEFT, 0, Math.max(from - own.#LEFT, 0), canvas.clientHeight);
    context.fillRect(to, 0, Math.max(own.#LEFT + width - to, 0), canvas.clientHeight);
    context.globalAlpha = 1;
    context.strokeStyle = this.#colours.dim;
    context.strokeRect(from + 0.5, 0.5, Math.max(to - from - 1, 2), canvas.clientHeight - 1);
  }

  // Returns the run that is nearest to a place on the canvas, -1 where there is none.
  #nearest(pixelX, pixelY) {
    const { x, mean, env } = this.#data;
    const near = (reach) => {
      let best = -1, least = Infinity;
      const to = Math.min(this.#from(this.#xAt(pixelX + reach)) + 1, x.length);
      for (let run = Math.max(this.#from(this.#xAt(pixelX - reach)) - 1, 0); run < to; run += 1) {
        if (this.#off.has(env[run]) || Number.isNaN(mean[run])) continue;
        if (x[run] < this.#view[0] || x[run] > this.#view[1]) continue;
        // Along the axis people aim well; across it they need not.
        const far = Math.hypot(this.#place(x[run]) - pixelX, (this.#height(mean[run]) - pixelY) * 0.2);
        if (far < least) { least = far; best = run; }
      }
      return best;
    };
    const close = near(10);
    return close >= 0 ? close : near(this.#canvas.clientWidth);
  }

  #at(event) {
    const box = this.#canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  }

  #setHover(run) {
    this.#hover = run;
    this.redraw();
    const { x, mean } = this.#data;
    if (run < 0) this.#listener.hover(-1, 0, 0);
    else this.#listener.hover(this.#data.run[run], this.#place(x[run]), this.#height(mean[run]));
  }

  #listen() {
    const canvas = this.#canvas;
    canvas.addEventListener("pointerdown", (event) => this.#press(event));
    canvas.addEventListener("pointermove", (event) => this.#drag(event));
    canvas.addEventListener("pointerup", (event) => this.#release(event));
    canvas.addEventListener("pointercancel", (event) => this.#pointers.delete(event.pointerId));
    canvas.addEventListener("pointerleave", () => { if (!this.#pointers.size) this.#setHover(-1); });
    canvas.addEventListener("dblclick", () => this.all());
    canvas.addEventListener("wheel", (event) => this.#wheel(event), { passive: false });
    canvas.addEventListener("keydown", (event) => this.#key(event));
    canvas.addEventListener("blur", () => this.#setHover(-1));
    this.#map.addEventListener("pointerdown", (event) => {
      this.#map.setPointerCapture(event.pointerId);
      this.#map.classList.add("dragged");
      this.#centre(event);
    });
    this.#map.addEventListener("pointermove", (event) => { if (event.buttons) this.#centre(event); });
    this.#map.addEventListener("pointerup", () => this.#map.classList.remove("dragged"));
  }

  #centre(event) {
    const box = this.#map.getBoundingClientRect();
    const { width } = this.#area();
    const [first, last] = this.#whole();
    const middle = first + ((event.clientX - box.left - window.PerfkitChart.#LEFT) / width) * (last - first);
    const half = (this.#view[1] - this.#view[0]) / 2;
    this.#look(middle - half, middle + half);
  }

  #press(event) {
    if (event.button) return;
    this.#pointers.set(event.pointerId, this.#at(event));
    this.#dragged = false;
    this.#canvas.setPointerCapture(event.pointerId);
    if (this.#pointers.size === 2) this.#pinch = this.#spread();
  }

  #spread() {
    const [one, other] = [...this.#pointers.values()];
    return { far: Math.max(Math.abs(one[0] - other[0]), 10), middle: (one[0] + other[0]) / 2 };
  }

  #drag(event) {
    const now = this.#at(event);
    const before = this.#pointers.get(event.pointerId);
    if (!before) {
      const label = this.#labelAt(now);
      this.#canvas.style.cursor = label ? "pointer" : "";
      this.#setHover(this.#nearest(...now));
      return;
    }
    if (this.#pointers.size === 2) {
      this.#pointers.set(event.pointerId, now);
      const spread = this.#spread();
      this.zoom(this.#pinch.far / spread.far, this.#xAt(spread.middle));
      this.#pinch = spread;
      this.#dragged = true;
      return;
    }
    if (!this.#dragged && Math.abs(now[0] - before[0]) < 5) return;
    this.#dragged = true;
    this.#canvas.classList.add("dragged");
    this.#setHover(-1);
    const by = ((before[0] - now[0]) / this.#area().width) * (this.#view[1] - this.#view[0]);
    this.#look(this.#view[0] + by, this.#view[1] + by);
    this.#pointers.set(event.pointerId, now);
  }

  #release(event) {
    const pressed = this.#pointers.delete(event.pointerId);
    this.#canvas.classList.remove("dragged");
    if (!pressed || this.#dragged) return;
    const at = this.#at(event);
    const label = this.#labelAt(at);
    if (label) { this.#listener.step(label.id); return; }
    const run = this.#nearest(...at);
    if (run >= 0) { this.#setHover(run); this.#listener.pick(this.#data.run[run]); }
  }

  #labelAt([x, y]) {
    return this.#labels.find((one) => x >= one.left && x <= one.right && y >= one.top && y <= one.bottom);
  }

  #wheel(event) {
    // The page must still scroll when the pointer only passes over the chart.
    const wanted = event.ctrlKey || event.metaKey || document.activeElement === this.#canvas;
    if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      event.preventDefault();
      this.move(event.deltaX / this.#area().width);
    } else if (wanted) {
      event.preventDefault();
      this.zoom(Math.exp(Math.max(Math.min(event.deltaY, 100), -100) * 0.004), this.#xAt(this.#at(event)[0]));
    }
  }

  #key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    const acts = {
      "+": () => this.zoom(0.6), "=": () => this.zoom(0.6), "-": () => this.zoom(1 / 0.6), 0: () => this.all(),
      Home: () => this.#walk(-Infinity), End: () => this.#walk(Infinity),
      Enter: () => { if (this.#hover >= 0) this.#listener.pick(this.#data.run[this.#hover]); },
    };
    const act = step ? () => (event.shiftKey ? this.move(0.2 * step) : this.#walk(step)) : acts[event.key];
    if (!act) return;
    act();
    event.preventDefault();
    event.stopPropagation();
  }

  // Goes from run to run; the view follows.
  #walk(by) {
    const { x, env } = this.#data;
    const last = x.length - 1;
    let run = this.#hover < 0 ? Math.min(this.#from(this.#view[1]), last + 1) : this.#hover;
    if (this.#hover < 0 && by > 0 && by !== Infinity) run = this.#from(this.#view[0]) - 1;
    do run = Math.min(Math.max(run + by, 0), last); while (this.#off.has(env[run]) && run > 0 && run < last);
    if (x[run] < this.#view[0] || x[run] > this.#view[1]) {
      const half = (this.#view[1] - this.#view[0]) / 2;
      this.#look(x[run] - half, x[run] + half);
    }
    this.#setHover(run);
  }
};
