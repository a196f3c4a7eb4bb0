// Keeps the regions of a page up to date: loads the page again, and replaces each region (`data-region`) that has changed. Regions come with their
// content from the server, so that there is one way to make them.
"use strict";

// The pause between two loads: a page that takes long to make is loaded less often.
const PAUSE_MS = 2000;
const PAUSE_FACTOR = 20;

const main = document.getElementById("main");
const freshness = document.getElementById("freshness");
let timer;

// Returns whether the reader types or chooses in an element, which must not be replaced then.
function isInUse(region) {
  const active = document.activeElement;
  if (region.contains(active) && active.matches("input, textarea, select")) return true;
  const selection = getSelection();
  return !selection.isCollapsed && region.contains(selection.anchorNode);
}

// Returns where a region is scrolled to, as its new content would begin at its start.
const scrolls = (region) => [...region.querySelectorAll(".scroll, pre")].map((part) => [part.scrollLeft, part.scrollTop]);

function replace(region, next) {
  const active = region.contains(document.activeElement) ? document.activeElement : null;
  const place = active && active.closest("tr") ? [...region.querySelectorAll("tr")].indexOf(active.closest("tr")) : -1;
  const before = scrolls(region);
  region.replaceChildren(...next.childNodes);
  [...region.querySelectorAll(".scroll, pre")].forEach((part, at) => before[at] && part.scrollTo(...before[at]));
  if (!active) return;
  // The same element, or else what has taken its place.
  const same = active.id && document.getElementById(active.id);
  const link = active.href && [...region.querySelectorAll("a")].find((found) => found.href === active.href);
  const row = place >= 0 ? region.querySelectorAll("tr")[place] : null;
  const target = same || link || (row && row.querySelector("a, button")) || region.querySelector("[tabindex], a, button");
  if (target) target.focus({ preventScroll: true });
}

function show(text) {
  const next = new DOMParser().parseFromString(text, "text/html");
  for (const found of next.querySelectorAll("[data-region]")) {
    const region = document.getElementById(found.id);
    if (region && region.innerHTML !== found.innerHTML && !isInUse(region)) replace(region, found);
  }
  // A region that has come or gone: the page has another shape, which a load shows.
  const ids = (root) => [...root.querySelectorAll("[data-region]")].map((region) => region.id).join();
  if (ids(document) !== ids(next) && document.activeElement === document.body) location.reload();
}

function say(state, text) {
  if (freshness.dataset.state !== state || freshness.textContent !== text) {
    freshness.dataset.state = state;
    freshness.textContent = text;
  }
}

async function load() {
  clearTimeout(timer);
  const begun = performance.now();
  if (!document.hidden) {
    try {
      const answer = await fetch(location.href, { headers: { accept: "text/html" } });
      if (answer.ok) {
        show(await answer.text());
        say("live", "live");
      } else {
        say("bad", answer.status === 401 ? "log in again: load the page" : `the server answers with ${answer.status}`);
      }
    } catch {
      say("bad", "the server does not answer");
    }
  }
  timer = setTimeout(load, Math.max(PAUSE_MS, (performance.now() - begun) * PAUSE_FACTOR));
}

if (main.dataset.live === "yes") {
  say("live", "live");
  timer = setTimeout(load, PAUSE_MS);
  document.addEventListener("visibilitychange", () => document.hidden || load());
}

// A message about the last write is read, and is gone after the next load.
const notice = document.getElementById("notice");
if (notice) {
  notice.focus({ preventScroll: true });
  const url = new URL(location.href);
  url.searchParams.delete("notice");
  history.replaceState(null, "", url);
}

for (const link of document.querySelectorAll("[data-back]")) {
  link.addEventListener("click", (event) => {
    if (history.length > 1) {
      event.preventDefault();
      history.back();
    }
  });
}

// `/` leads to the filter.
document.addEventListener("keydown", (event) => {
  if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input, textarea, select")) return;
  const filter = document.getElementById("filter");
  if (filter) {
    event.preventDefault();
    filter.focus();
    filter.select();
  }
});
