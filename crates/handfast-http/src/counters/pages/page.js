// The live page. It asks the service that it comes from, every two seconds while somebody looks.
"use strict";

const POLL_MS = 2000;
const DAYS = 30;
const element = (id) => document.getElementById(id);
const numbers = new Intl.NumberFormat("en");

let token = "";
let kind = "";
let before = null; // The views and the uptime of the last answer.
let timer = 0;

async function ask(path) {
  const headers = token ? { authorization: `Bearer ${token}` } : {};
  const answer = await fetch(path, { headers, cache: "no-store" });
  const body = await answer.json();
  if (answer.ok) return body;
  throw Object.assign(new Error(body.detail), { status: answer.status });
}

function say(text, state) {
  element("state").textContent = text;
  element("state").className = `state ${state}`;
}

function cell(row, text, name) {
  const cell = row.insertCell();
  cell.textContent = text;
  if (name) cell.className = name;
}

function fill(id, rows, columns, nothing) {
  const body = element(id);
  body.replaceChildren();
  for (const row of rows) {
    const line = body.insertRow();
    row.forEach((text, at) => cell(line, text, at ? "number" : ""));
  }
  if (rows.length === 0) {
    const line = body.insertRow();
    cell(line, nothing);
    line.cells[0].colSpan = columns;
  }
}

function shape(name, attributes) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [attribute, value] of Object.entries(attributes)) made.setAttribute(attribute, value);
  return made;
}

function showDays(days) {
  const largest = Math.max(1, ...days.map((day) => day.views));
  const x = (at) => (days.length < 2 ? 300 : (600 * at) / (days.length - 1)).toFixed(1);
  const points = days.map((day, at) => `${x(at)},${(150 - (140 * day.views) / largest).toFixed(1)}`);
  element("curve").replaceChildren(
    shape("line", { class: "base", x1: 0, y1: 150, x2: 600, y2: 150 }),
    shape("polygon", { class: "area", points: `0,150 ${points.join(" ")} 600,150` }),
    shape("polyline", { class: "line", points: points.join(" ") }),
  );
  const sum = days.reduce((sum, day) => sum + day.views, 0);
  element("days-text").textContent =
    `${numbers.format(sum)} saved views in ${days.length} days, ${numbers.format(Math.max(0, ...days.map((day) => day.views)))} on the best day`;
  element("first-day").textContent = days.length ? days[0].day : "";
  element("last-day").textContent = days.length ? days[days.length - 1].day : "";
  fill("days", [...days].reverse().map((day) => [day.day, numbers.format(day.views)]), 2, "none");
}

function showKinds(queues) {
  const kinds = queues.map((queue) => queue.kind);
  const select = element("kind");
  const shown = [...select.options].map((option) => option.value);
  if (kinds.join() !== shown.join()) {
    select.replaceChildren(...kinds.map((name) => new Option(name, name, false, name === kind)));
  }
  if (!kinds.includes(kind)) kind = kinds[0] || "";
  select.value = kind;
}

function showRate(status) {
  if (before && status.uptime_seconds > before.uptime_seconds && status.views >= before.views) {
    const rate = (status.views - before.views) / (status.uptime_seconds - before.uptime_seconds);
    element("rate").textContent = numbers.format(rate < 10 ? Math.round(rate * 10) / 10 : Math.round(rate));
  }
  before = { views: status.views, uptime_seconds: status.uptime_seconds };
}

function showStatus(status) {
  say(status.ready ? (status.parts.length ? "counts views, but not all works" : "ready") : "cannot count views",
    status.ready && status.parts.length === 0 ? "good" : "bad");
  showRate(status);
  const waiting = status.queues.reduce((sum, queue) => sum + queue.requests, 0);
  element("waiting").textContent = numbers.format(waiting);
  const oldest = (queue) => (queue.oldest_seconds === null ? "–" : `${numbers.format(Math.round(queue.oldest_seconds))} s`);
  fill("queue", status.queues.map((queue) =>
    [queue.kind, numbers.format(queue.requests), numbers.format(queue.batches), oldest(queue)]), 4, "no kind has had a view");
  const parts = ["queue", "store", "saving"].map((part) => {
    const broken = status.parts.find((found) => found.part === part);
    return Object.assign(document.createElement("li"), { textContent: `${part}: ${broken ? broken.detail : "works"}` });
  });
  element("parts").replaceChildren(...parts);
  element("instance").textContent =
    `This instance, ${status.buffer}, version ${status.version}, has counted ${numbers.format(status.views)} views in ${numbers.format(Math.round(status.uptime_seconds))} seconds. Days are in ${status.time_zone}.`;
  const summary = status.kind;
  element("total").textContent = summary ? numbers.format(summary.views) : "–";
  element("items").textContent = summary ? numbers.format(summary.items) : "–";
  if (summary) showDays(summary.days);
}

async function refresh() {
  const query = kind ? `?kind=${encodeURIComponent(kind)}` : "";
  const status = await ask(`status${query}`);
  const known = kind;
  showKinds(status.queues);
  if (kind !== known) return refresh();
  showStatus(status);
  element("figures").hidden = false;
  element("access").hidden = true;
  if (!kind) return fill("top", [], 2, "none");
  const today = element("top-days").value === "today" && status.kind ? status.kind.days.at(-1).day : "";
  const top = await ask(`v1/${kind}/top?n=10${today ? `&day=${today}` : ""}`);
  fill("top", top.items.map((item) => [item.id, numbers.format(item.views)]), 2, "none");
}

async function poll() {
  clearTimeout(timer);
  if (!document.hidden) {
    try {
      await refresh();
    } catch (error) {
      if (error.status === 401) {
        say("reading needs a token", "bad");
        element("refused").textContent = token ? "The token is unknown." : "";
        token = "";
        element("figures").hidden = true;
        element("access").hidden = false;
        return;
      }
      say(error.status ? error.message : "the service does not answer", "bad");
    }
  }
  timer = setTimeout(poll, POLL_MS);
}

element("kind").addEventListener("change", (event) => {
  kind = event.target.value;
  poll();
});
element("top-days").addEventListener("change", poll);
element("access").addEventListener("submit", (event) => {
  event.preventDefault();
  token = element("token").value.trim();
  element("token").value = "";
  poll();
});
document.addEventListener("visibilitychange", poll);
poll();
