// The comparison of two measured commits: the address names them, a table has one row a benchmark.
"use strict";
(() => {
  const data = window.perfkitLevels, commits = window.perfkitCommits;
  const field = (id) => document.getElementById(id);
  if (!field("compared")) return;
  const { element, filled, ratioText, summed, valueText } = window.perfkitWords;
  const machines = Object.keys(data.machines);
  const sides = ["base", "head"];
  // Those of gates come first: their levels were measured in alternation.
  const series = data.benchmarks.map((_, number) => data.series.filter((one) => one.benchmark === number).sort((one, other) => other.gates - one.gates));
  // How many series have each commit, by machine.
  const measured = new Map(machines.map((machine) => [machine, new Map()]));

  function decode() {
    commits.time = summed(commits.time);
    for (const one of data.series) {
      one.commit = summed(one.commit);
      one.level = summed(one.level);
      const counts = measured.get(one.machine);
      for (const number of one.commit) counts.set(number, (counts.get(number) ?? 0) + 1);
    }
  }

  // The address keeps the choice: "#base=v1.0&head=4f0ee3ba12".

  function chosen() {
    const given = new URLSearchParams(location.hash.slice(1));
    const on = sides.map((side) => given.get(`${side}-machine`)).map((id) => (machines.includes(id) ? id : null));
    const [base, head] = [on[0] ?? on[1] ?? machines[0], on[1] ?? on[0] ?? machines[0]];
    const places = sides.map((side) => numberOf(given.get(side)));
    const b = places[1] ?? usual(head).at(-1);
    const before = usual(base).filter((number) => number < b);
    const a = places[0] ?? data.names.map(([, number]) => number).filter((number) => before.includes(number)).at(-1) ?? before.at(-1) ?? b;
    const unknown = sides.map((side, number) => (given.get(side) && places[number] === null ? given.get(side) : null)).filter(Boolean);
    return { base: { commit: a, machine: base }, head: { commit: b, machine: head }, unknown };
  }

  // Returns the commits at which half of a machine's benchmarks or more are measured, oldest first.
  function usual(machine) {
    const counts = [...measured.get(machine)], most = Math.max(...counts.map(([, count]) => count));
    return counts.filter(([, count]) => 2 * count >= most).map(([number]) => number).sort((one, other) => one - other);
  }

  function numberOf(text) {
    if (!text) return null;
    const named = data.names.find(([name]) => name === text);
    if (named) return named[1];
    const found = text.length < 4 ? -1 : commits.sha.findIndex((sha) => sha.startsWith(text));
    return found < 0 ? null : found;
  }

  function keep(base, head) {
    const kept = new URLSearchParams({ base: commits.sha[base.commit].slice(0, 10), head: commits.sha[head.commit].slice(0, 10) });
    if (machines.length > 1) {
      kept.set("base-machine", base.machine);
      kept.set("head-machine", head.machine);
    }
    location.replace(`#${kept}`);
  }

  function picked() {
    return sides.map((side) => ({ commit: Number(field(side).value), machine: field(`${side}-machine`).value }));
  }

  // What can be chosen

  function fillMachines() {
    for (const side of sides) {
      field(`${side}-machine`).append(...machines.map((machine) => new Option(data.machines[machine], machine)));
      field(`${side}-machine`).parentElement.hidden = machines.length < 2;
    }
  }

  function fill(side, { commit, machine }) {
    const known = measured.get(machine);
    const text = (number) => `${commits.sha[number].slice(0, 10)} ${commits.time[number] === null ? "" : new Date(commits.time[number] * 1000).toISOString().slice(0, 10)} ${commits.subject[number]}`;
    const group = (label, options) => {
      const made = element("optgroup");
      made.label = label;
      made.append(...options);
      return made;
    };
    const names = data.names.filter(([, number]) => known.has(number)).map(([name, number]) => new Option(`${name}: ${text(number)}`, number));
    const all = [...new Set([...known.keys(), commit])].sort((one, other) => other - one).map((number) => new Option(text(number), number));
    field(side).replaceChildren(group("Measured commits", all), ...(names.length ? [group("Newest of branches, releases and base", names)] : []));
    field(side).value = String(commit);
    field(`${side}-machine`).value = machine;
  }

  // What is found

  const place = (one, side) => (one.machine === side.machine ? one.commit.lastIndexOf(side.commit) : -1);
  const kindAt = (one, at) => one.kinds.findLast(([from]) => from <= at);

  // Returns what the newest gate of both commits found, whichever was its base.
  function gateOf(number, base, head) {
    const found = data.gates.findLast(([of, from, to, machine]) => of === number && machine === base.machine && machine === head.machine
      && from !== to && [base.commit, head.commit].includes(from) && [base.commit, head.commit].includes(to));
    if (!found) return null;
    const [, from, , , ratio, low, high, confidence] = found;
    return from === base.commit ? { ratio, interval: [low, high], confidence } : { ratio: 1 / ratio, interval: [1 / high, 1 / low], confidence };
  }

  // Returns a benchmark's row, null where one side is not measured.
  function compared(number, base, head) {
    const own = series[number];
    const both = own.find((one) => place(one, base) >= 0 && place(one, head) >= 0);
    const [a, b] = both ? [both, both] : [base, head].map((side) => own.find((one) => place(one, side) >= 0));
    if (!a || !b) return null;
    const [at, until] = [place(a, base), place(b, head)];
    const levels = [a.level[at], b.level[until]];
    if (levels.includes(null)) return null;
    const gate = gateOf(number, base, head);
    const ratio = gate?.ratio ?? Math.exp((levels[1] - levels[0]) / 1e5);
    const [before, after] = [kindAt(a, at), kindAt(b, until)];
    // Another version of the benchmark may do other work.
    const edited = both !== undefined && before[1] !== after[1];
    const runs = !edited && !a.gates && !b.gates && a.noise !== null && b.noise !== null && (!both || base.commit !== head.commit);
    // The logarithms of both limits, each for two runs of one series, add up as sds do.
    const limit = runs ? Math.exp(Math.hypot(Math.log(a.noise), Math.log(b.noise)) / Math.SQRT2) : edited ? null : both?.noise ?? null;
    const interval = gate ? gate.interval : runs ? [ratio / limit, ratio * limit] : null;
    return {
      ...data.benchmarks[number], ratio, interval, levels: levels.map((level) => Math.exp(level / 1e5)),
      quiet: ratio === 1 || (interval ? interval[0] <= 1 && interval[1] >= 1 : limit !== null && ratio <= limit && ratio >= 1 / limit),
      unknown: ratio !== 1 && !interval && limit === null,
      confidence: gate?.confidence ?? 0.95, edited, other: before[2] !== after[2],
      from: gate ? "a gate of both" : both?.gates ? "gates between them" : both ? "two runs" : base.machine === head.machine ? "runs and gates" : "two machines",
    };
  }

  function row(one) {
    const made = element("tr"), head = element("th"), link = element("a", one.name);
    head.scope = "row";
    link.href = `benchmarks/${one.slug}.html`;
    head.append(link);
    const worse = (one.ratio > 1) === (one.better === "lower");
    const sign = one.ratio === 1 ? "" : one.quiet ? "≈ " : one.unknown ? "? " : one.ratio > 1 ? "▲ " : "▼ ";
    const change = element("td", "", "number");
    change.dataset.sort = String(one.ratio);
    change.append(element("span", `${sign}${ratioText(one.ratio)}${one.other ? "*" : ""}`, one.quiet ? "dim" : one.unknown ? "" : worse ? "worse" : "better"));
    const interval = element("td", one.interval ? one.interval.map(ratioText).join(" to ") : "not known", "number dim");
    if (one.interval) interval.title = `${Math.round(100 * one.confidence)} % interval`;
    const levels = one.levels.map((level) => {
      const cell = element("td", valueText(level, one.unit), "number");
      cell.dataset.sort = String(level);
      return cell;
    });
    made.append(head, change, interval, ...levels, element("td", `${one.from}${one.edited ? ", and the benchmark's own source changed" : ""}`, "dim"));
    return made;
  }

  function show() {
    const { base, head, unknown } = chosen();
    fill("base", base);
    fill("head", head);
    const rows = data.benchmarks.map((_, number) => compared(number, base, head)).filter(Boolean);
    const loss = (one) => Math.log(one.ratio) * (one.better === "lower" ? 1 : -1);
    const doubt = (one) => (one.quiet ? 2 : Number(one.unknown));
    rows.sort((one, other) => doubt(one) - doubt(other) || loss(other) - loss(one));
    for (const cell of field("compared").tHead.rows[0].cells) cell.removeAttribute("aria-sort");
    field("compared").tBodies[0].replaceChildren(...rows.map(row));
    const clear = rows.filter((one) => doubt(one) === 0), worse = clear.filter((one) => loss(one) > 0).length;
    const unsure = rows.filter((one) => one.unknown).length;
    const lacking = data.benchmarks.length - rows.length;
    field("found").textContent = [
      ...unknown.map((text) => `The address names ${text}, which is not measured here.`),
      rows.length ? `${worse} worse and ${clear.length - worse} better of ${rows.length} ${rows.length === 1 ? "benchmark" : "benchmarks"}.` : "No benchmark was measured at both.",
      ...(unsure ? [`${unsure} of which it is not known what identical code differs by.`] : []),
      ...(rows.length && lacking ? [`${lacking} ${lacking === 1 ? "was" : "were"} not measured at both.`] : []),
    ].join(" ");
    const [a, b] = [commits.sha[base.commit], commits.sha[head.commit]];
    field("command").textContent = `perfkit gate --base ${a.slice(0, 10)} --head ${b.slice(0, 10)}`;
    field("command").parentElement.hidden = a === b;
    field("no-command").hidden = a !== b;
    field("copy").textContent = "Copy";
    const { rangeUrl } = document.body.dataset;
    field("commits").hidden = !rangeUrl || a === b;
    if (rangeUrl) field("commits").href = filled(rangeUrl, { before: a, after: b });
  }

  function exchange() {
    keep(...picked().reverse());
  }

  function copy() {
    getSelection().selectAllChildren(field("command"));
    // The newer interface is refused to pages of an unencrypted server.
    field("copy").textContent = document.execCommand("copy") ? "Copied" : "Copy the marked text";
  }

  decode();
  fillMachines();
  show();
  for (const side of sides) {
    for (const control of [field(side), field(`${side}-machine`)]) control.addEventListener("input", () => keep(...picked()));
  }
  field("exchange").addEventListener("click", exchange);
  field("copy").addEventListener("click", copy);
  window.perfkitKeys.x = exchange;
  addEventListener("hashchange", show);
  document.documentElement.dataset.ready = "yes";
})();
