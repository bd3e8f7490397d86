// A benchmark's page: which series is shown, what a run was, how two runs compare, and the table of all.
"use strict";
(() => {
  const data = window.perfkitBenchmark, commits = window.perfkitCommits;
  const field = (id) => document.getElementById(id);
  const setup = document.body.dataset;
  const ROWS = 100;
  // 1.96 standard errors, of 1.36 sd / sqrt(n) each, of the lower quartile of n normal values.
  const QUARTILE_95 = 2.67;
  const { element, filled, ratioText, summed, timeText } = window.perfkitWords;
  const valueText = (value) => window.perfkitWords.valueText(value, series.unit);
  let series = null, picked = [], page = 0, chart = null;

  function decode() {
    commits.time = summed(commits.time);
    data.runs.commit = summed(data.runs.commit);
    data.runs.time = summed(data.runs.time);
    for (const one of data.series) {
      const worth = (value) => (value === null ? NaN : value);
      one.run = summed(one.run);
      one.mean = Float64Array.from(one.mean, worth);
      one.sd = Float64Array.from(one.sd, worth);
      one.level = Float64Array.from(one.level, worth);
    }
  }

  // Words and numbers

  // All ticks of an axis have one unit, and digits enough to differ.
  function valueTexts(values) {
    const largest = values.reduce((most, value) => Math.max(most, Math.abs(value)), 0);
    const unit = window.perfkitWords.unitFor(largest, series.unit) ?? ["", 1];
    for (let places = 0; places < 7; places += 1) {
      const texts = values.map((value) => (value / unit[1]).toFixed(places));
      const exact = values.every((value, number) => Math.abs(value / unit[1] - Number(texts[number])) < 1e-9 * (largest / unit[1]));
      if (exact || places === 6) return texts.map((text) => `${Number(text).toLocaleString("en", { minimumFractionDigits: places, maximumFractionDigits: places })} ${unit[0]}`.trim());
    }
    return [];
  }

  function amountText(ratio) {
    const time = series.unit === "s";
    if (ratio === 1) return "the same as A";
    if (ratio >= 3 || ratio < 0.2) return `${ratioText(ratio)} of A`;
    const word = time ? (ratio > 1 ? "slower" : "faster") : ratio > 1 ? "more" : "less";
    return `${ratioText(ratio).replace(/^[+-]/, "")} ${word} than A`;
  }

  function facts(run) {
    const number = series.run[run];
    const commit = data.runs.commit[number];
    return {
      sha: commits.sha[commit], subject: commits.subject[commit], committed: commits.time[commit],
      author: commits.authors[commits.author[commit]], measured: data.runs.time[number], id: data.runs.id[number],
      source: data.sources[data.runs.source[number]], env: data.runs.env[number],
      mean: series.mean[run], level: series.level[run], sd: series.sd[run], launches: series.launches[run],
      version: Array.isArray(series.version) ? series.version[run] : 0, same: series.same[run] ?? [],
    };
  }

  function commitNode(sha) {
    if (!setup.commitUrl) return element("code", sha.slice(0, 10), "sha");
    const link = element("a", sha.slice(0, 10), "sha");
    link.href = filled(setup.commitUrl, { commit: sha });
    link.rel = "noreferrer";
    return link;
  }

  // The environments of a series in the order in which it saw them: their shapes and colours.
  function environmentsOf(one) {
    return [...new Set(one.run.map((run) => data.runs.env[run]))];
  }

  function differing(one, other) {
    const before = data.environments[one].facts, after = data.environments[other].facts;
    return [...new Set([...Object.keys(before), ...Object.keys(after)])]
      .filter((name) => before[name] !== after[name])
      .map((name) => ({ name, before: before[name] ?? "none", after: after[name] ?? "none" }));
  }

  // What the chart is given

  function chartData() {
    const byTime = field("axis").value === "time";
    const count = series.run.length;
    const when = series.run.map((run) => commits.time[data.runs.commit[run]] ?? data.runs.time[run]);
    const order = Array.from({ length: count }, (_, run) => run);
    if (byTime) order.sort((one, other) => when[one] - when[other] || one - other);
    const x = Float64Array.from(order, (run, place) => (byTime ? when[run] : place));
    const place = new Map(order.map((run, at) => [run, at]));
    const shapes = new Map(environmentsOf(series).map((env, number) => [env, number]));
    const env = Int32Array.from(order, (run) => shapes.get(data.runs.env[series.run[run]]));
    const version = Int32Array.from(order, (run) => (Array.isArray(series.version) ? series.version[run] : 0));
    const spread = (run, sign) => {
      // Where runs of the same code are known, they tell better what one run is worth than its few launches.
      if (series.noise) return series.level[run] * series.noise ** (sign / Math.SQRT2);
      const launches = series.launches[run], known = launches > 1 && !Number.isNaN(series.sd[run]);
      const half = known ? ((QUARTILE_95 / Math.sqrt(launches)) * series.sd[run]) / (series.mean[run] || 1) : 0;
      return series.level[run] * (1 + sign * Math.min(half, 1));
    };
    const between = (run) => {
      const at = place.get(run);
      return at > 0 ? (x[at - 1] + x[at]) / 2 : x[at];
    };
    const steps = series.steps.filter((step) => step.at !== null && step.state !== "ignored").map((step) => ({
      ...step, x: between(step.at), quiet: step.state !== "open" || step.cause !== "code" || document.querySelector(`[data-point="${step.id}"].undone`) !== null,
      text: `${step.text.startsWith("-") || step.text.startsWith("×0") ? "▼" : "▲"} ${step.text}`,
    })).sort((one, other) => one.x - other.x);
    const likely = series.likely ? [{ x: between(series.likely[0]), text: `? ${series.likely[1]}`, border: true }] : [];
    return {
      x, byTime, env, version, run: order, steps,
      mean: Float64Array.from(order, (run) => series.level[run]),
      low: Float64Array.from(order, (run) => spread(run, -1)),
      high: Float64Array.from(order, (run) => spread(run, 1)),
      repeated: new Set(series.repeated.map((run) => place.get(run))), levels: levels(x, place), borders: borders(x, env, version), likely, releases: releases(x, order, byTime),
      same: Object.keys(series.same).map((run) => x[place.get(Number(run))]), least: byTime ? 60 : 4, valueTexts,
      placeText: (at, wide) => placeText(at, wide, x, order, when, byTime),
    };
  }

  // The levels between steps, as the steps tell them.
  function levels(x, place) {
    const found = [];
    const known = series.steps.filter((step) => step.at !== null && step.state !== "ignored");
    known.forEach((step) => {
      const at = place.get(step.at);
      const from = Math.max(at - step.runs[0], 0), to = Math.min(at + step.runs[1], x.length) - 1;
      found.push({ from: x[from], to: x[Math.max(at - 1, 0)], value: step.before });
      found.push({ from: x[at], to: x[to], value: step.after });
    });
    return found;
  }

  // Where the software or the benchmark itself changed; many changes would only hide the runs.
  function borders(x, env, version) {
    const found = [];
    const kinds = environmentsOf(series);
    for (let at = 1; at < x.length; at += 1) {
      const middle = (x[at - 1] + x[at]) / 2;
      if (version[at] !== version[at - 1]) found.push({ x: middle, text: "the benchmark's source changed", border: true });
      else if (env[at] !== env[at - 1]) {
        const changes = differing(kinds[env[at - 1]], kinds[env[at]]);
        const [first] = changes;
        const more = changes.length > 1 ? `, and ${changes.length - 1} more` : "";
        found.push({ x: middle, text: first ? `environment: ${first.name} ${first.before} → ${first.after}${more}` : "other environment", border: true });
      }
    }
    return found.length > 30 ? [] : found;
  }

  function releases(x, order, byTime) {
    return commits.releases.map((release) => {
      if (byTime) return { x: release.time, text: release.name };
      if (release.at === null || release.at === undefined) return { x: null };
      const at = order.findIndex((run) => data.runs.commit[series.run[run]] >= release.at);
      return { x: at < 0 ? null : at - 0.5, text: release.name };
    }).filter((release) => release.x !== null);
  }

  function placeText(at, wide, x, order, when, byTime) {
    if (byTime) return new Date(at * 1000).toISOString().slice(0, wide < 4 * 86400 ? 16 : 10).replace("T", " ");
    const run = order[Math.min(Math.max(Math.round(at), 0), order.length - 1)];
    const day = wide <= 14 ? "" : `${new Date(when[run] * 1000).toISOString().slice(0, 10)} `;
    return `${day}${facts(run).sha.slice(0, 7)}`;
  }

  // What people see of a run

  function hover(run, x, y) {
    const tip = field("tip");
    tip.hidden = run < 0;
    if (run < 0) return;
    const known = facts(run);
    const head = element("div");
    head.append(element("b", valueText(known.level)));
    const others = [element("div", `${known.sha.slice(0, 10)} ${known.subject}`), element("div", `${timeText(known.committed ?? known.measured)}, ${launchesText(known.launches)}, ${known.source}`, "dim")];
    if (picked.length === 1 && picked[0] !== run) others.push(element("div", `${ratioText(known.level / series.level[picked[0]])} against A`));
    tip.replaceChildren(head, ...others);
    const plot = tip.parentElement;
    const left = x + 16 + tip.offsetWidth > plot.clientWidth ? x - 16 - tip.offsetWidth : x + 16;
    tip.style.left = `${Math.max(left, 0)}px`;
    tip.style.top = `${Math.max(Math.min(y - tip.offsetHeight / 2, 380 - tip.offsetHeight), 0)}px`;
  }

  function launchesText(count) {
    return count === 1 ? "1 launch" : `${count} launches`;
  }

  function pick(run) {
    if (picked.includes(run)) picked = picked.filter((other) => other !== run);
    else picked = [picked[0], run].filter((each) => each !== undefined);
    showPicked();
  }

  function showPicked() {
    const box = field("picked");
    chart.picked = picked;
    box.replaceChildren(...picked.map((run, number) => card(run, picked.length > 1 ? "AB"[number] : "")));
    if (picked.length === 2) box.prepend(comparison(...picked));
    else if (picked.length === 1) box.append(element("p", "Click another run to compare it with this one. Click this one again, or press Esc, to let it go.", "dim small"));
  }

  function list(pairs) {
    const made = element("dl");
    for (const [name, value] of pairs) {
      const shown = element("dd");
      shown.append(value);
      made.append(element("dt", name), shown);
    }
    return made;
  }

  function card(run, letter) {
    const known = facts(run);
    const box = element("div", "", "run");
    const head = element("h3", letter ? `${letter}: ` : "");
    head.append(commitNode(known.sha), ` ${known.subject}`);
    const environment = element("span");
    environment.append(element("code", data.environments[known.env].id), ` ${Object.entries(data.environments[known.env].facts).filter(([name]) => ["python", "torch", "cuda", "threads"].includes(name)).map(([name, value]) => `${name} ${value}`).join(", ")}`);
    const sd = known.launches > 1 && !Number.isNaN(known.sd) ? `${valueText(known.sd)} (${((100 * known.sd) / known.mean).toFixed(1)} %)` : "not known from one launch";
    const pairs = [
      [series.lockstep ? "level, by gates" : "level", element("strong", valueText(known.level))], ["mean", valueText(known.mean)], ["sd", sd], ["launches", String(known.launches)],
      ["committed", `${timeText(known.committed)}${known.author ? ` by ${known.author}` : ""}`], ["measured", timeText(known.measured)],
      ...(known.same.length ? [["same code", `not measured: ${known.same.join(", ")}`]] : []),
      ["source", known.source], ["environment", environment], ["run", element("code", known.id)],
    ];
    box.append(head, list(pairs));
    return box;
  }

  function comparison(one, other) {
    const [a, b] = [facts(one), facts(other)];
    const ratio = b.level / a.level;
    const box = element("div", "", "compared");
    const within = series.noise !== null && ratio <= series.noise && ratio >= 1 / series.noise;
    const worse = (ratio > 1) === (series.better === "lower");
    const shown = element("p", "", `ratio ${within || ratio === 1 ? "dim" : worse ? "worse" : "better"}`);
    shown.textContent = Number.isFinite(ratio) ? `B is ${amountText(ratio)}` : "A is zero, so there is no ratio";
    box.append(element("h3", "A and B compared"), shown, element("p", `Level: ${valueText(a.level)} → ${valueText(b.level)}`));
    for (const text of cautions(a, b, within)) box.append(element("p", text, "small"));
    if (a.sha === b.sha) {
      box.append(element("p", "Both are of one commit: its code makes no difference between them.", "small"));
      return box;
    }
    const command = element("p", "Measured side by side: ", "small");
    command.append(element("code", `perfkit gate --base ${a.sha.slice(0, 10)} --head ${b.sha.slice(0, 10)}${setup.selection}`));
    const others = element("a", "All benchmarks at A and B");
    others.href = `../compare.html#base=${a.sha.slice(0, 10)}&head=${b.sha.slice(0, 10)}&base-machine=${encodeURIComponent(series.machine)}`;
    box.append(command, others, " ");
    if (setup.rangeUrl) {
      const link = element("a", "Commits between A and B");
      link.href = filled(setup.rangeUrl, { before: a.sha, after: b.sha });
      link.rel = "noreferrer";
      box.append(link);
    }
    return box;
  }

  function cautions(a, b, within) {
    const found = [];
    if (a.version !== b.version) found.push("The benchmark's own source differs between them: they may have measured different work.");
    if (a.env !== b.env) {
      const changes = differing(a.env, b.env).map((one) => `${one.name} ${one.before} → ${one.after}`);
      found.push(`Software or settings differ: ${changes.slice(0, 4).join(", ") || "details are not known"}${changes.length > 4 ? ` and ${changes.length - 4} more` : ""}.`);
    }
    if (a.id === b.id) found.push("One run measured both.");
    else if (series.lockstep) found.push("The ratio follows from all the gates between them, each of which measured two commits in alternation.");
    else if (within) found.push(`Two runs of identical code differ as much on this machine (up to ${ratioText(series.noise)}, 19 times of 20), so this says nothing.`);
    else if (series.noise !== null) found.push(`Two runs of identical code stay within ${ratioText(series.noise)} on this machine 19 times of 20; this is more.`);
    else found.push("They were measured at different times, and what two runs of identical code differ by is not known here: take small differences for noise.");
    return found;
  }

  // The table

  function showTable() {
    const body = field("points").tBodies[0];
    const count = series.run.length;
    const last = Math.max(Math.ceil(count / ROWS) - 1, 0);
    page = Math.min(Math.max(page, 0), last);
    const rows = [];
    for (let run = count - 1 - page * ROWS; run >= Math.max(count - (page + 1) * ROWS, 0); run -= 1) {
      const known = facts(run);
      const row = element("tr");
      const head = element("th");
      head.scope = "row";
      head.append(commitNode(known.sha));
      row.append(head, element("td", known.subject), element("td", timeText(known.measured)), element("td", valueText(known.level), "number"), element("td", valueText(known.mean), "number"), element("td", valueText(known.sd), "number"), element("td", String(known.launches), "number"), element("td", known.source), element("td", data.environments[known.env].id));
      rows.push(row);
    }
    body.replaceChildren(...rows);
    field("range").textContent = `runs ${page * ROWS + 1} to ${Math.min((page + 1) * ROWS, count)} of ${count}`;
    field("newer").disabled = page === 0;
    field("older").disabled = page === last;
  }

  // Which series is shown

  function legend() {
    const kinds = environmentsOf(series);
    const box = field("legend");
    box.replaceChildren();
    if (kinds.length < 2) return;
    const signs = { circle: "○", square: "□", triangle: "△", diamond: "◇", cross: "×" };
    const off = new Set();
    box.append("Environments:");
    kinds.forEach((env, number) => {
      const label = element("label");
      const tick = element("input");
      tick.type = "checkbox";
      tick.checked = true;
      tick.addEventListener("change", () => {
        if (tick.checked) off.delete(number); else off.add(number);
        chart.off = new Set(off);
      });
      const sign = element("span", signs[window.PerfkitChart.SHAPES[number % 5]]);
      sign.style.color = chart.colour(number);
      const changes = number ? differing(kinds[number - 1], env).map((one) => `${one.name} ${one.after}`) : differing(env, kinds[1]).map((one) => `${one.name} ${one.before}`);
      label.append(tick, sign, changes.slice(0, 3).join(", ") || data.environments[env].id);
      label.title = data.environments[env].id;
      box.append(label);
    });
  }

  function choose(number) {
    field("series").value = String(number);
    series = data.series[number];
    const band = series.noise ? " Band: where 95 % of runs of the same code lie." : series.launches.some((launches) => launches > 1) ? " Band: its 95 % interval." : "";
    field("meaning").textContent = (series.lockstep
      ? "Line: each commit, by gates, which measure two commits by turns."
      : "Line: each run, from the quickest rounds of its processes, since other programs can only slow them down.") + band;
    if (series.steps.some((step) => step.state !== "ignored")) field("meaning").textContent += " Dashed lines: lasting changes. Dark lines: the mean between them.";
    if (Object.keys(series.same).length) field("meaning").textContent += " A grey square below a run: commits that are not measured run the same code.";
    if (series.repeated.length) field("meaning").textContent += " Filled in grey: the benchmark runs the same code as at the commit measured before, so a change there is noise.";
    picked = [];
    page = 0;
    for (const part of document.querySelectorAll(".summary[data-series]")) {
      part.toggleAttribute("data-other", Number(part.dataset.series) !== number);
    }
    showSteps(false);
    chart.off = new Set();
    chart.show(chartData());
    legend();
    showPicked();
    if (field("runs").open) showTable();
  }

  // Steps of what the chart shows; those of other metrics and machines on demand.
  function showSteps(all) {
    const parts = [...document.querySelectorAll(".steps li")];
    if (!parts.length) return;
    const own = parts.filter((part) => Number(part.dataset.series) === data.series.indexOf(series));
    for (const part of parts) part.hidden = !all && !own.includes(part);
    const button = field("other-steps"), others = parts.length - own.length;
    button.hidden = all || others === 0;
    button.textContent = others === 1 ? "Show 1 change of another metric or machine" : `Show ${others} changes of other metrics or machines`;
    field("no-step").hidden = own.length > 0;
  }

  function goToStep(id, scroll) {
    const part = document.querySelector(`[data-point="${CSS.escape(id)}"]`);
    if (!part) return;
    document.querySelectorAll(".steps li.at").forEach((other) => other.classList.remove("at"));
    part.classList.add("at");
    const number = Number(part.dataset.series);
    if (data.series[number] !== series) choose(number);
    const step = series.steps.find((one) => one.id === id);
    if (step && step.at !== null) chart.zoomTo(chartData().run.indexOf(step.at));
    if (scroll) part.scrollIntoView({ block: "nearest" });
    else field("chart").scrollIntoView({ block: "center" });
  }

  function listen() {
    field("series").addEventListener("input", (event) => choose(Number(event.target.value)));
    field("other-steps")?.addEventListener("click", () => showSteps(true));
    field("axis").addEventListener("input", () => chart.show(chartData()));
    field("zero").addEventListener("input", (event) => { chart.zero = event.target.checked; });
    field("in").addEventListener("click", () => chart.zoom(0.6));
    field("out").addEventListener("click", () => chart.zoom(1 / 0.6));
    field("all").addEventListener("click", () => chart.all());
    field("runs").addEventListener("toggle", () => { if (field("runs").open) showTable(); });
    field("newer").addEventListener("click", () => { page -= 1; showTable(); });
    field("older").addEventListener("click", () => { page += 1; showTable(); });
    document.addEventListener("click", (event) => {
      const button = event.target.closest("button.show");
      if (button) goToStep(button.closest("[data-point]").dataset.point, false);
    });
    const go = (where) => () => { if (!where) return false; location.href = where; };
    Object.assign(window.perfkitKeys, {
      j: go(setup.after), k: go(setup.before), u: go("../index.html"),
      c: () => field("chart").focus(),
      Escape: () => { picked = []; showPicked(); },
    });
    addEventListener("hashchange", followHash);
  }

  function followHash() {
    const found = /^#point-([0-9a-f]+)$/.exec(location.hash);
    if (found) goToStep(found[1], true);
  }

  decode();
  chart = new window.PerfkitChart(field("chart"), field("map"), { hover, pick, step: (id) => goToStep(id, true) });
  choose(Number(setup.leading));
  chart.draw();
  listen();
  followHash();
  document.documentElement.dataset.ready = "yes";
  performance.mark("perfkit-ready");
})();
