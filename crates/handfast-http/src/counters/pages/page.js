// The live page. It asks the service that it comes from, every two seconds while somebody looks.
"use strict";

const POLL_MS = 2000;
const RATE_SECONDS_MIN = 1; // A shorter time between two reports gives no rate: a few views more or less would change it too much.
const DAYS = 30;
const element = (id) => document.getElementById(id);
const numbers = new Intl.NumberFormat("en");

let token = "";
let kind = "";
let reports = new Map(); // By the name of each instance: uptime and views as of its last report, and its views a second (null: not known yet).
let timer = 0;
let newest = 0; // The number of the newest poll: an older one that is still under way shows nothing more and sets no timer.

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

// Compares each report with an earlier one of the same instance, by the clock of that instance: reports are of different moments. An instance that starts
// again has another name, so its views are not compared with those of before; one that is gone is forgotten.
function keepReports(instances) {
  const known = reports;
  reports = new Map();
  for (const { name, uptime_seconds: uptime, views } of instances) {
    const last = known.get(name);
    const passed = last ? uptime - last.uptime : 0;
    // The instance that answers knows newer figures of itself than others are told later.
    if (last && passed < RATE_SECONDS_MIN) reports.set(name, last);
    else if (!last || views < last.views) reports.set(name, { uptime, views, rate: null });
    else reports.set(name, { uptime, views, rate: (views - last.views) / passed });
  }
}

const shownRate = (rate) => (rate === null ? "–" : numbers.format(rate < 10 ? Math.round(rate * 10) / 10 : Math.round(rate)));

function showRate() {
  const rates = [...reports.values()].map((report) => report.rate).filter((rate) => rate !== null);
  element("rate").textContent = shownRate(rates.length ? rates.reduce((sum, rate) => sum + rate, 0) : null);
}

function span(seconds) {
  const whole = Math.floor(seconds);
  for (const [unit, part, of, size] of [["d", "h", 86400, 3600], ["h", "min", 3600, 60], ["min", "s", 60, 1]]) {
    if (whole >= of) return `${numbers.format(Math.floor(whole / of))} ${unit} ${Math.floor((whole % of) / size)} ${part}`;
  }
  return `${whole} s`;
}

function named(tag, text, name) {
  return Object.assign(document.createElement(tag), { textContent: text, className: name });
}

function showInstances(status) {
  const labels = [...document.querySelectorAll("#instances-head th")].map((head) => head.textContent);
  const rows = status.instances.map((instance) => {
    const line = document.createElement("tr");
    const isThis = instance.name === status.name;
    const short = Object.assign(named("code", instance.name.slice(0, 8), ""), { title: instance.name });
    const first = line.insertCell();
    const addresses = instance.addresses.length ? instance.addresses : ["no address"];
    addresses.forEach((address, at) => first.append(named("span", at + 1 < addresses.length ? `${address},` : address, "address"), " "));
    if (isThis) first.append(named("strong", "this one", "mark"), " ");
    first.append(short);
    const seen = isThis || instance.seen_seconds < 1 ? "now" : `${span(instance.seen_seconds)} ago`;
    const figures = [instance.version, span(instance.uptime_seconds), shownRate(reports.get(instance.name).rate),
      numbers.format(instance.views), numbers.format(instance.saved), seen];
    figures.forEach((text) => cell(line, text, "number"));
    [...line.cells].forEach((cell, at) => (cell.dataset.label = labels[at]));
    return line;
  });
  element("instances").replaceChildren(...rows);
}

function showStatus(status) {
  say(status.ready ? (status.parts.length ? "counts views, but not all works" : "ready") : "cannot count views",
    status.ready && status.parts.length === 0 ? "good" : "bad");
  keepReports(status.instances);
  showRate();
  const waiting = status.queues.reduce((sum, queue) => sum + queue.requests, 0);
  element("waiting").textContent = numbers.format(waiting);
  const oldest = (queue) => (queue.oldest_seconds === null ? "–" : `${numbers.format(Math.round(queue.oldest_seconds))} s`);
  fill("queue", status.queues.map((queue) =>
    [queue.kind, numbers.format(queue.requests), numbers.format(queue.batches), oldest(queue)]), 4, "no kind has had a view");
  showInstances(status);
  const parts = ["queue", "store", "saving"].map((part) => {
    const broken = status.parts.find((found) => found.part === part);
    return Object.assign(document.createElement("li"), { textContent: `${part}: ${broken ? broken.detail : "works"}` });
  });
  element("parts").replaceChildren(...parts);
  element("form").textContent = `Cache and queue: ${status.buffer}. Days are in ${status.time_zone}.`;
  const summary = status.kind;
  element("total").textContent = summary ? numbers.format(summary.views) : "–";
  element("items").textContent = summary ? numbers.format(summary.items) : "–";
  if (summary) showDays(summary.days);
}

async function refresh(poll) {
  const query = kind ? `?kind=${encodeURIComponent(kind)}` : "";
  const status = await ask(`status${query}`);
  if (poll !== newest) return;
  const known = kind;
  showKinds(status.queues);
  if (kind !== known) return refresh(poll);
  showStatus(status);
  element("figures").hidden = false;
  element("access").hidden = true;
  if (!kind) return fill("top", [], 2, "none");
  const today = element("top-days").value === "today" && status.kind ? status.kind.days.at(-1).day : "";
  const top = await ask(`v1/${kind}/top?n=10${today ? `&day=${today}` : ""}`);
  if (poll !== newest) return;
  fill("top", top.items.map((item) => [item.id, numbers.format(item.views)]), 2, "none");
}

async function poll() {
  clearTimeout(timer);
  const mine = ++newest;
  if (!document.hidden) {
    try {
      await refresh(mine);
    } catch (error) {
      if (mine !== newest) return;
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
  if (mine === newest) timer = setTimeout(poll, POLL_MS);
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
