// The heat map of the overview: a row a benchmark, a column a commit, coloured by the change that came with it.
"use strict";
(() => {
  const canvas = document.getElementById("heat");
  const data = window.perfkitLevels, commits = window.perfkitCommits;
  const { ratioText, summed } = window.perfkitWords;
  const COLUMNS = 40, MOST_ROWS = 100, LEFT = 230;
  // A change that is worth a mark where it is not known what two runs of identical code differ by.
  const WORTH = Math.log(1.05);
  // A cell that is this many times as far is coloured; of many, 1 in 300 is by chance.
  const CLEAR = data.clear;
  const first = Math.max(commits.sha.length - COLUMNS, 0), columns = commits.sha.length - first;
  let rows = data.benchmarks.map(rowOf).filter((row) => row.cells.some(Boolean));
  const whole = rows.length;
  const colours = {};
  let at = null;

  // Returns a benchmark's cells; each machine is compared with itself, and the larger change is shown.
  function rowOf(benchmark, number) {
    const cells = new Array(columns).fill(null);
    for (const one of data.series.filter((each) => each.benchmark === number)) {
      for (const [column, cell] of cellsOf(one, benchmark)) {
        if (!cells[column] || cell.beyond > cells[column].beyond) cells[column] = cell;
      }
    }
    return { ...benchmark, cells };
  }

  function cellsOf(one, benchmark) {
    const levels = summed(one.level), limit = one.noise === null ? WORTH / CLEAR : Math.log(one.noise);
    const edited = new Set(one.kinds.filter(([, version], place) => place && version !== one.kinds[place - 1][1]).map(([place]) => place));
    const on = Object.keys(data.machines).length > 1 ? ` on ${data.machines[one.machine]}` : "";
    return summed(one.commit).map((commit, place) => {
      const change = place && !edited.has(place) && levels[place] !== null && levels[place - 1] !== null ? (levels[place] - levels[place - 1]) / 1e5 : null;
      const beyond = change === null ? 0 : Math.abs(change) / (limit || 1e-9);
      const text = edited.has(place) ? "the benchmark's own source changed" : change === null ? "nothing to compare with" : `${beyond <= CLEAR ? "\u2248 " : one.noise === null ? "? " : ""}${ratioText(Math.exp(change))}`;
      return [commit - first, { beyond, unknown: one.noise === null, worse: (change > 0) === (benchmark.better === "lower"), text: `${text}${on}` }];
    }).filter(([column]) => column >= 0);
  }

  function readColours() {
    const style = getComputedStyle(document.documentElement);
    for (const name of ["card", "line", "worse", "better", "ink", "dim"]) colours[name] = style.getPropertyValue(`--${name}`).trim();
    draw();
  }

  function sizes() {
    const high = Math.max(Math.min(Math.floor(400 / rows.length), 14), 2);
    const left = high >= 12 && canvas.clientWidth > 700 ? LEFT : 0;
    return { high, left, wide: (canvas.clientWidth - left) / columns };
  }

  function draw() {
    const { high, left, wide } = sizes(), ratio = window.devicePixelRatio || 1;
    canvas.width = Math.round(canvas.clientWidth * ratio);
    canvas.height = Math.round(high * rows.length * ratio);
    const context = canvas.getContext("2d");
    context.scale(ratio, ratio);
    context.font = "12px system-ui, sans-serif";
    context.textBaseline = "middle";
    const gap = high > 4 ? 1 : 0;
    rows.forEach(({ name, cells }, row) => {
      if (left) {
        context.fillStyle = colours.dim;
        context.fillText(name.length > 34 ? `\u2026${name.slice(-33)}` : name, 0, (row + 0.5) * high, left - 8);
      }
      cells.forEach((cell, column) => {
        if (!cell) return;
        const box = [left + column * wide, row * high, Math.max(wide - 1, 1), high - gap];
        context.fillStyle = colours.line;
        context.fillRect(...box);
        if (cell.beyond <= CLEAR) return;
        context.globalAlpha = cell.unknown ? 0.5 : Math.min(0.2 + 0.2 * cell.beyond, 1);
        context.fillStyle = cell.unknown ? colours.dim : cell.worse ? colours.worse : colours.better;
        context.fillRect(...box);
        context.globalAlpha = 1;
      });
    });
    if (!at) return;
    context.strokeStyle = colours.ink;
    context.lineWidth = 2;
    context.strokeRect(left + at.column * wide, at.row * high, Math.max(wide - 1, 1), high - gap);
  }

  function go(row, column) {
    at = { row: Math.min(Math.max(row, 0), rows.length - 1), column: Math.min(Math.max(column, 0), columns - 1) };
    const { name, cells } = rows[at.row], commit = first + at.column;
    canvas.title = `${name}, ${commits.sha[commit].slice(0, 10)} ${commits.subject[commit]}: ${cells[at.column]?.text ?? "not measured"}`;
    document.getElementById("cell").textContent = canvas.title;
    draw();
  }

  function placeOf(event) {
    const box = canvas.getBoundingClientRect(), { high, left, wide } = sizes();
    return [Math.floor((event.clientY - box.top) / high), Math.floor((event.clientX - box.left - left) / wide)];
  }

  function open() {
    location.href = `benchmarks/${rows[at.row].slug}.html`;
  }

  function listen() {
    canvas.addEventListener("pointermove", (event) => go(...placeOf(event)));
    canvas.addEventListener("click", (event) => { go(...placeOf(event)); open(); });
    canvas.addEventListener("keydown", (event) => {
      const steps = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1], Home: [0, -columns], End: [0, columns] };
      const step = steps[event.key];
      if (event.ctrlKey || event.metaKey || event.altKey || !(step || (at && event.key === "Enter"))) return;
      event.preventDefault();
      event.stopPropagation();
      if (step) go((at?.row ?? 0) + step[0], (at?.column ?? columns) + step[1]);
      else open();
    });
    document.addEventListener("perfkit-theme", readColours);
    let width = 0;
    new ResizeObserver(() => {
      if (width !== canvas.clientWidth) { width = canvas.clientWidth; draw(); }
    }).observe(canvas);
  }

  if (rows.length > MOST_ROWS) rows = rows.filter((row) => row.cells.some((cell) => cell?.beyond > CLEAR));
  const count = document.querySelector("#changes .count");
  count.textContent = rows.length < whole ? `${columns} commits, ${rows.length} of ${whole} benchmarks: the others did not change` : `${columns} commits`;
  canvas.hidden = rows.length === 0;
  if (rows.length) {
    document.getElementById("cell").textContent = "Choose a cell to see its benchmark and commit; a click opens the benchmark.";
    canvas.style.height = `${sizes().high * rows.length}px`;
    readColours();
    listen();
  }
})();
