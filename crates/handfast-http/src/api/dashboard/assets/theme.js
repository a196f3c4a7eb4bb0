// Shows the page in the reader's colors before it is drawn: those of the system, or those that the reader has chosen.
"use strict";

const THEMES = ["auto", "dark", "light"];

function theme() {
  const kept = localStorage.getItem("theme");
  return THEMES.includes(kept) ? kept : "auto";
}

function showTheme() {
  document.documentElement.dataset.theme = theme();
  const button = document.getElementById("theme");
  if (button) {
    button.hidden = false;
    button.querySelector("span").textContent = theme();
  }
}

showTheme();
document.addEventListener("DOMContentLoaded", () => {
  showTheme();
  document.getElementById("theme").addEventListener("click", () => {
    localStorage.setItem("theme", THEMES[(THEMES.indexOf(theme()) + 1) % THEMES.length]);
    showTheme();
  });
});
