// The overview's search, filters, order and keys; the order of columns works in every table of class "sortable".
"use strict";
(() => {
  for (const table of document.querySelectorAll("table.sortable")) makeSortable(table);

  function makeSortable(table) {
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, column) => {
      if (!head.dataset.key) return;
      const button = document.createElement("button");
      button.type = "button";
      button.className = "sort";
      button.textContent = head.textContent;
      button.title = `Sort by this column${head.title ? `. ${head.title}` : ""}`;
      head.removeAttribute("title");
      head.replaceChildren(button);
      button.addEventListener("click", () => {
        const down = head.getAttribute("aria-sort") === "ascending";
        heads.forEach((other) => other.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        sort(table.tBodies[0], column, down ? -1 : 1);
        table.dispatchEvent(new Event("sorted"));
      });
    });
    if (table.id === "benchmarks") {
      for (const row of table.tBodies[0].rows) {
        heads.forEach((head, column) => {
          if (column && head.textContent !== "Trend" && head.textContent !== "State") {
            row.cells[column].dataset.label = head.textContent;
          }
        });
      }
    }
  }

  function sort(body, column, way) {
    const keyed = [...body.rows].filter((row) => !row.matches(".group")).map((row, place) => {
      const cell = row.cells[column];
      const text = cell.dataset.sort ?? cell.textContent.trim();
      return { row, place, text, number: text === "" ? NaN : Number(text) };
    });
    keyed.sort((one, other) => {
      // What has no value always comes last.
      if ((one.text === "") !== (other.text === "")) return one.text === "" ? 1 : -1;
      const byNumber = one.number - other.number;
      const by = Number.isNaN(byNumber) ? one.text.localeCompare(other.text, "en", { numeric: true }) : byNumber;
      return by * way || one.place - other.place;
    });
    body.append(...keyed.map((each) => each.row));
  }

  const table = document.getElementById("benchmarks");
  if (!table) return;
  const rows = [...table.tBodies[0].rows];
  const names = rows.map((row) => row.cells[0].textContent.toLowerCase());
  const field = (id) => document.getElementById(id);
  const search = field("search"), kind = field("kind"), metric = field("metric"), machine = field("machine");
  const attention = new Set(["worse", "drift", "silent", "unclear"]);
  // More rows than these are folded by file.
  const FOLDED = 30;
  const groups = new Map();
  let at = null;

  function group() {
    for (const row of rows) {
      const { file } = row.dataset;
      if (groups.has(file)) continue;
      const head = table.tBodies[0].insertRow(row.sectionRowIndex), cell = document.createElement("th");
      const button = document.createElement("button"), count = document.createElement("span");
      head.className = "group";
      cell.colSpan = table.tHead.rows[0].cells.length;
      cell.scope = "rowgroup";
      button.type = "button";
      button.textContent = file;
      count.className = "count";
      button.append(" ", count);
      cell.append(button);
      head.append(cell);
      const made = { head, button, count, open: false, fits: 0, urgent: 0 };
      groups.set(file, made);
      button.addEventListener("click", () => { made.open = !made.open; filter(); });
    }
  }

  function filter() {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const one of groups.values()) one.fits = one.urgent = 0;
    const fitting = rows.filter((row, number) => {
      const { kind: state, metric: measured, machine: on, leads, file } = row.dataset;
      const fits = words.every((word) => names[number].includes(word))
        && (!kind.value || (kind.value === "attention" ? attention.has(state) : kind.value === state))
        && (!metric.value || metric.value === measured)
        && (machine.value ? ["all", on].includes(machine.value) : leads !== undefined || attention.has(state));
      const own = groups.get(file);
      own.fits += fits;
      own.urgent += fits && attention.has(state);
      return fits;
    });
    const shown = fitting.length;
    const folded = shown > FOLDED && groups.size > 1 && !words.length && !kind.value && !table.querySelector("[aria-sort]");
    const seen = new Set(fitting.filter((row) => !folded || groups.get(row.dataset.file).open));
    for (const row of rows) row.hidden = !seen.has(row);
    for (const { head, button, count, open, fits, urgent } of groups.values()) {
      head.hidden = !folded || fits === 0;
      button.setAttribute("aria-expanded", String(open));
      count.textContent = `${fits} ${fits === 1 ? "row" : "rows"}`;
      if (urgent) {
        const alarm = document.createElement("span");
        alarm.className = "worse";
        alarm.textContent = `, ${urgent} ${urgent === 1 ? "needs" : "need"} attention`;
        count.append(alarm);
      }
    }
    field("shown").textContent = shown === rows.length ? `${shown} rows` : `${shown} of ${rows.length} rows`;
    field("none").hidden = shown > 0;
    if (at && at.hidden) choose(null);
  }

  function choose(row) {
    if (at) at.classList.remove("at");
    at = row;
    if (!row) return;
    row.classList.add("at");
    row.querySelector("a, button").focus({ preventScroll: true });
    row.scrollIntoView({ block: "nearest" });
  }

  function move(by) {
    const shown = [...table.tBodies[0].rows].filter((row) => !row.hidden);
    if (!shown.length) return;
    const place = shown.indexOf(at);
    choose(shown[place < 0 ? (by > 0 ? 0 : shown.length - 1) : Math.min(Math.max(place + by, 0), shown.length - 1)]);
  }

  table.addEventListener("sorted", filter);
  for (const control of [search, kind, metric, machine]) control.addEventListener("input", filter);
  field("clear").addEventListener("click", () => {
    for (const control of [search, kind, metric]) control.value = "";
    machine.value = "all";
    filter();
    search.focus();
  });
  search.addEventListener("keydown", (event) => {
    if (event.key === "Enter" || event.key === "ArrowDown") { move(1); event.preventDefault(); }
  });
  Object.assign(window.perfkitKeys, {
    "/": () => { search.focus(); search.select(); },
    j: () => move(1),
    k: () => move(-1),
    Enter: (event) => {
      // A focused link or button does what it always does.
      if (!at || event.target.closest("a, button, summary")) return false;
      at.querySelector("a, button").click();
    },
    a: () => { kind.value = kind.value === "attention" ? "" : "attention"; filter(); },
    Escape: () => {
      if (document.activeElement === search && search.value) { search.value = ""; filter(); } else document.activeElement.blur();
    },
  });
  group();
  filter();
})();
