// Before the first paint: the scheme that was chosen, or else the system's.
"use strict";
(() => {
  const chosen = sessionStorage.getItem("freshet.theme");
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const apply = () => {
    const now = sessionStorage.getItem("freshet.theme") || (dark.matches ? "dark" : "light");
    document.documentElement.dataset.theme = now;
    dispatchEvent(new CustomEvent("freshet-theme", { detail: now }));
  };
  document.documentElement.dataset.theme = chosen || (dark.matches ? "dark" : "light");
  dark.addEventListener("change", apply);
  addEventListener("DOMContentLoaded", () => {
    const button = document.getElementById("theme");
    const name = () => {
      button.textContent = document.documentElement.dataset.theme === "dark" ? "Light" : "Dark";
      button.setAttribute("aria-label", `${button.textContent} colours`);
    };
    button.addEventListener("click", () => {
      const next = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
      sessionStorage.setItem("freshet.theme", next);
      apply();
    });
    addEventListener("freshet-theme", name);
    name();
  });
})();
