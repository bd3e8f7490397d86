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
})();
