// What all pages share: the switch between light and dark, the list of keys, and keys themselves.
"use strict";
(() => {
  const root = document.documentElement;
  const button = document.getElementById("theme");
  const keys = document.getElementById("keys");
  const choices = ["system", "light", "dark"];

  function showTheme() {
    button.querySelector("span").textContent = root.dataset.theme || "system";
    document.dispatchEvent(new Event("perfkit-theme"));
  }

  function nextTheme() {
    const next = choices[(choices.indexOf(root.dataset.theme || "system") + 1) % choices.length];
    if (next === "system") delete root.dataset.theme; else root.dataset.theme = next;
    try {
      if (next === "system") localStorage.removeItem("perfkit-theme"); else localStorage.setItem("perfkit-theme", next);
    } catch { /* The choice then holds for this page only. */ }
    showTheme();
  }

  button.addEventListener("click", nextTheme);
  document.getElementById("help").addEventListener("click", () => keys.showModal());
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", showTheme);
  showTheme();

  // Pages add their own keys here: a function by the name of the key.
  window.perfkitKeys = { t: nextTheme, "?": () => keys.showModal() };
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing || keys.open) return;
    const at = event.target;
    const typing = at instanceof HTMLElement && (at.isContentEditable || /^(INPUT|SELECT|TEXTAREA)$/.test(at.tagName));
    if (typing && event.key !== "Escape") return;
    const act = Object.hasOwn(window.perfkitKeys, event.key) ? window.perfkitKeys[event.key] : null;
    if (act && act(event) !== false) event.preventDefault();
  });

  // Words and numbers

  const UNITS = { s: [["s", 1], ["ms", 1e-3], ["us", 1e-6], ["ns", 1e-9]], B: [["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10], ["B", 1]] };

  // Columns hold differences to the known number before; null stays null.
  function summed(column) {
    let sum = 0;
    return column.map((by) => (by === null ? null : (sum += by)));
  }

  function element(name, text = "", kind = "") {
    const made = document.createElement(name);
    made.textContent = text;
    if (kind) made.className = kind;
    return made;
  }

  function unitFor(value, name) {
    const known = UNITS[name];
    return known ? known.find(([, worth]) => Math.abs(value) >= worth) ?? known[known.length - 1] : null;
  }

  function valueText(value, name) {
    const unit = unitFor(value, name);
    if (Number.isNaN(value)) return "-";
    if (value === 0 && name === "s") return "0 s";
    if (!unit) {
      const shown = Number.isInteger(value) ? value.toLocaleString("en") : value.toLocaleString("en", { maximumSignificantDigits: 4 });
      return ["", "1"].includes(name) ? shown : `${shown} ${name}`;
    }
    return `${digits(value / unit[1])} ${unit[0]}`;
  }

  function digits(value) {
    const whole = Math.abs(value) < 10 ? 1 : Math.abs(value) < 100 ? 2 : 3;
    return value.toFixed(Math.max(3 - whole, 0));
  }

  function ratioText(ratio) {
    if (ratio >= 3) return `×${ratio.toFixed(1)}`;
    if (ratio < 0.2) return `×${Number(ratio.toPrecision(2))}`;
    const percent = 100 * (ratio - 1);
    const shown = percent.toFixed(Math.abs(percent) >= 1 ? 1 : 2);
    return Number(shown) === 0 ? "0 %" : `${percent > 0 ? "+" : ""}${shown} %`;
  }

  function timeText(seconds) {
    return seconds === null ? "not known" : `${new Date(seconds * 1000).toISOString().slice(0, 16).replace("T", " ")} UTC`;
  }

  function filled(pattern, names) {
    return Object.entries(names).reduce((text, [name, value]) => text.replaceAll(`{${name}}`, encodeURIComponent(value)), pattern);
  }

  window.perfkitWords = { element, filled, ratioText, summed, timeText, unitFor, valueText };
})();
