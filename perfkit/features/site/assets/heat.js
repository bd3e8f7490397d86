// The heat map of the overview: a row a benchmark, a column a commit, coloured by the change that came with it.
"use strict";
(() => {
  const canvas = document.getElementById("heat");
  const data = window.perfkitLevels, commits = window.perfkitCommits;
  const { ratioText, summed } = window.perfkitWords;
  const COLUMNS = 40;
  // Up to so many rows have names of their own; of more, those are shown that changed, and files have names.
  const NAMED = 45, LINE = 15, ABOVE = 22, BELOW = 38;
  // A change that is worth a mark where it is not known what two runs of identical code differ by.
  const WORTH = Math.log(1.05);
  // A cell that is this many times as far is coloured; of many, 1 in 300 is by chance.
  const CLEAR = data.clear;
  // Commits of other branches have no column: nobody has merged what they change.
  const aside = new Set(commits.aside);
  const own = [...commits.sha.keys()].filter((commit) => !aside.has(commit)), shown = own.slice(-COLUMNS);
  const columns = shown.length, columnOf = new Map(shown.map((commit, column) => [commit, column]));
  const times = summed(commits.time);
  let rows = data.benchmarks.map(rowOf).filter((row) => row.cells.some(Boolean));
  const whole = rows.length;
  const colours = {};
  let at = null;

  // Returns a benchmark's cells; each machine is compared with itself, and the larger change is shown.
  function rowOf(benchmark, number) {
    const cells = new Array(columns).fill(null);
    for (const one of data.series.filter((each) => each.benchmark === number)) {
      for (const [column, cell] of cellsOf(one, benchmark)) {
        if (!cells[column] || cell.beyond > cells[column].beyond) cells[column] = { ...cell, named: cell.named || cells[column]?.named };
      }
    }
    return { ...benchmark, cells };
  }

  function cellsOf(one, benchmark) {
    const levels = summed(one.level), limit = one.noise === null ? WORTH / CLEAR : Math.log(one.noise);
    const edited = new Set(one.kinds.filter(([, version], place) => place && version !== one.kinds[place - 1][1]).map(([place]) => place));
    const elsewhere = new Set(one.kinds.filter(([, , env], place) => place && env !== one.kinds[place - 1][2]).map(([place]) => place));
    const on = Object.keys(data.machines).length > 1 ? ` on ${data.machines[one.machine]}` : "";
    let before = null, isEdited = false, isElsewhere = false;
    return summed(one.commit).flatMap((commit, place) => {
      isEdited ||= edited.has(place);
      isElsewhere ||= elsewhere.has(place);
      if (aside.has(commit)) return [];
      const change = !isEdited && levels[place] !== null && before !== null ? (levels[place] - before) / 1e5 : null;
      const beyond = change === null ? 0 : Math.abs(change) / (limit || 1e-9);
      const text = isEdited ? "the benchmark's own source changed" : change === null ? "nothing to compare with" : `${beyond <= CLEAR ? "\u2248 " : one.noise === null ? "? " : ""}${ratioText(Math.exp(change))}`;
      const cell = { beyond, named: one.named.includes(commit), unknown: one.noise === null || isElsewhere, worse: (change > 0) === (benchmark.better === "lower"), text: `${text}${isElsewhere ? ", as the environment changed" : ""}${on}` };
      before = levels[place];
      isEdited = isElsewhere = false;
      return columnOf.has(commit) ? [[columnOf.get(commit), cell]] : [];
    });
  }

  function readColours() {
    const style = getComputedStyle(document.documentElement);
    for (const name of ["card", "line", "worse", "better", "ink", "dim"]) colours[name] = style.getPropertyValue(`--${name}`).trim();
    draw();
  }

  // Returns where rows begin, how high and wide cells are, and the labels beside the rows.
  function layout() {
    const left = canvas.clientWidth > 700 ? 300 : 100, named = rows.length <= NAMED;
    const high = named ? LINE : Math.max(Math.min(Math.floor(520 / rows.length), 9), 3);
    const tops = [], labels = [];
    let y = ABOVE, file = null, begun = ABOVE;
    rows.forEach((row) => {
      if (!named && row.file !== file) {
        if (file !== null) y = Math.max(y, begun + LINE) + 5;
        begun = y;
        file = row.file;
        labels.push({ text: file, y: y + LINE / 2 });
      }
      if (named) labels.push({ text: row.name, y: y + high / 2 });
      tops.push(y);
      y += high;
    });
    return { left, high, tops, labels, named, bottom: Math.max(y, begun + LINE), wide: (canvas.clientWidth - left) / columns };
  }

  // Cuts a text at its beginning, as the ends of names differ.
  function fitting(context, text, room) {
    if (context.measureText(text).width <= room) return text;
    let cut = text;
    while (cut && context.measureText(`\u2026${cut}`).width > room) cut = cut.slice(1);
    return `\u2026${cut}`;
  }

  function drawAxes(context, { left, labels, named, bottom, wide }) {
    context.fillStyle = colours.dim;
    context.textAlign = "left";
    context.fillText(named ? "benchmark" : left > 200 ? "file (one row per benchmark)" : "file", 0, ABOVE / 2, left - 8);
    for (const { text, y } of labels) context.fillText(fitting(context, text, left - 8), 0, y);
    context.fillText("commit", 0, bottom + 14);
    context.fillText("date", 0, bottom + 29);
    context.textAlign = "right";
    context.fillText("newest", canvas.clientWidth, ABOVE / 2);
    context.textAlign = "left";
    context.fillText("older commits", left, ABOVE / 2);
    // Commits of outlined cells and the newest have labels, and others as far as there is room.
    const marked = rows.flatMap((row) => row.cells.flatMap((cell, column) => (cell?.named ? [column] : [])));
    const every = Math.max(Math.ceil(84 / wide), 1), taken = [];
    for (const column of [...marked, ...Array.from({ length: Math.ceil(columns / every) }, (_, number) => columns - 1 - number * every)]) {
      const commit = shown[column], right = left + (column + 1) * wide - 1;
      if (right - 66 < left - 2 || taken.some((one) => Math.abs(one - column) < every)) continue;
      taken.push(column);
      context.fillRect(right - wide / 2, bottom + 1, 1, 5);
      context.textAlign = "right";
      context.fillText(commits.sha[commit].slice(0, 7), right, bottom + 14);
      const time = times[commit];
      if (time !== null) context.fillText(new Date(time * 1000).toISOString().slice(0, 10), right, bottom + 29);
    }
  }

  function draw() {
    const placed = layout(), { left, high, tops, wide, bottom } = placed, ratio = window.devicePixelRatio || 1;
    canvas.style.height = `${bottom + BELOW}px`;
    canvas.width = Math.round(canvas.clientWidth * ratio);
    canvas.height = Math.round((bottom + BELOW) * ratio);
    const context = canvas.getContext("2d");
    context.scale(ratio, ratio);
    context.font = "12px system-ui, sans-serif";
    context.textBaseline = "middle";
    const gap = high > 4 ? 1 : 0;
    rows.forEach(({ cells }, row) => {
      cells.forEach((cell, column) => {
        if (!cell) return;
        const box = [left + column * wide, tops[row], Math.max(wide - 1, 1), high - gap];
        context.fillStyle = colours.line;
        context.fillRect(...box);
        if (cell.beyond > CLEAR || cell.named) {
          context.globalAlpha = cell.unknown ? 0.5 : Math.min(0.2 + 0.2 * cell.beyond, 1);
          context.fillStyle = cell.unknown ? colours.dim : cell.worse ? colours.worse : colours.better;
          context.fillRect(...box);
          context.globalAlpha = 1;
        }
        if (!cell.named) return;
        context.strokeStyle = colours.ink;
        context.lineWidth = 1;
        context.strokeRect(box[0] + 0.5, box[1] + 0.5, box[2] - 1, box[3] - 1);
      });
    });
    drawAxes(context, placed);
    if (!at) return;
    context.strokeStyle = colours.ink;
    context.lineWidth = 2;
    context.strokeRect(left + at.column * wide, tops[at.row], Math.max(wide - 1, 1), high - gap);
  }

  function go(row, column) {
    at = { row: Math.min(Math.max(row, 0), rows.length - 1), column: Math.min(Math.max(column, 0), columns - 1) };
    const { name, cells } = rows[at.row], commit = shown[at.column];
    canvas.title = `${name}, ${commits.sha[commit].slice(0, 10)} ${commits.subject[commit]}: ${cells[at.column]?.text ?? "not measured"}`;
    document.getElementById("cell").textContent = canvas.title;
    draw();
  }

  function placeOf(event) {
    const box = canvas.getBoundingClientRect(), { left, tops, wide } = layout();
    const y = event.clientY - box.top, row = tops.findLastIndex((top) => top <= y);
    return [row, Math.floor((event.clientX - box.left - left) / wide)];
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

  if (rows.length > NAMED) rows = rows.filter((row) => row.cells.some((cell) => cell?.beyond > CLEAR));
  const count = document.querySelector("#changes .count");
  const of = `${columns < own.length ? `newest ${columns} of ${own.length}` : columns} commits${aside.size ? ` (without ${aside.size} of other branches)` : ""}`;
  count.textContent = rows.length < whole ? `${of}, ${rows.length} of ${whole} benchmarks: the others did not change` : of;
  canvas.hidden = rows.length === 0;
  if (rows.length) {
    document.getElementById("cell").textContent = "Point at a cell to read its benchmark, commit and change; a click opens the benchmark.";
    readColours();
    listen();
  }
})();
