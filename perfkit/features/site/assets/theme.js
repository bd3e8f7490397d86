// Chooses light or dark before the page is painted, so that it does not flash.
"use strict";
(() => {
  const root = document.documentElement;
  root.classList.add("scripted");
  let kept = null;
  try { kept = localStorage.getItem("perfkit-theme"); } catch { /* A browser may keep nothing for files. */ }
  if (kept === "light" || kept === "dark") root.dataset.theme = kept;
})();
