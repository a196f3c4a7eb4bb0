// Draws the curves of the overview from the events of the server, one reading a second.
"use strict";

const SVG = "http://www.w3.org/2000/svg";
const SECONDS_MAX = 300;
const HEIGHT = 150;
const LEFT = 44;
const BOTTOM = 18;
const TOP = 8;

const readings = [];

function made(name, attributes = {}, text = "") {
  const node = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  if (text) node.textContent = text;
  return node;
}

const number = (value) =>
  value === null || value === undefined ? "–"
    : value >= 1e6 ? `${(value / 1e6).toFixed(1)} M`
      : value >= 1e4 ? `${(value / 1e3).toFixed(1)} k`
        : value >= 100 || Number.isInteger(value) ? String(Math.round(value))
          : value >= 10 ? value.toFixed(1) : value.toFixed(2);

// A number beside a line of the grid, which is round.
const tickText = (value) => (value >= 1e4 ? number(value) : String(Number(value.toPrecision(3))));

// Returns the figure at a path such as readMillis.p50.
const figure = (reading, path) => path.split(".").reduce((value, name) => (value === null || value === undefined ? null : value[name] ?? null), reading);

// The seconds that the curves show: more of them as there are more readings.
const seconds = () => [60, 120, SECONDS_MAX].find((span) => span >= readings.length);

// Returns the least of 1, 2, 2.5, 5 and their multiples by ten that is not below a value.
function rounded(value) {
  if (value <= 0) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 2.5, 5, 10].map((step) => step * power).find((step) => step >= value);
}

// Numbers from 0 to a round one.
function linear(values) {
  const top = rounded(Math.max(...values));
  return { ticks: [0, top / 2, top], share: (value) => value / top };
}

// Powers of ten, for durations: the usual ones and the longest ones are seen at once.
function logarithmic(values) {
  const above = values.filter((value) => value > 0);
  const low = Math.floor(Math.log10(Math.min(...above, 1)));
  const high = Math.max(Math.ceil(Math.log10(Math.max(...above, 1))), low + 1);
  const ticks = [];
  for (let power = low; power <= high; power += 1) ticks.push(10 ** power);
  return { ticks, share: (value) => (value > 0 ? Math.max(0, (Math.log10(value) - low) / (high - low)) : 0) };
}

class Curve {
  constructor(box) {
    this.box = box;
    this.width = 600;
    this.unit = box.dataset.unit;
    this.series = box.dataset.series.split(" ").map((text, place) => {
      const [path, name] = text.split(":");
      return { path, name, place };
    });
    this.svg = made("svg", { role: "img", class: "plot" });
    this.legend = document.createElement("ul");
    this.legend.className = "legend";
    for (const series of this.series) {
      const item = document.createElement("li");
      const key = document.createElement("i");
      key.className = `series${series.place}`;
      series.value = document.createElement("b");
      item.append(key, series.name, series.value);
      this.legend.append(item);
    }
    box.append(this.svg, this.legend);
    this.at = null;
    new ResizeObserver(() => draw()).observe(box);
    this.svg.addEventListener("pointermove", (event) => this.point(event));
    this.svg.addEventListener("pointerleave", () => { this.at = null; this.draw(); });
  }

  point(event) {
    const box = this.svg.getBoundingClientRect();
    const x = (event.clientX - box.left) / box.width * this.width;
    this.at = Math.round((x - LEFT) / (this.width - LEFT) * (seconds() - 1)) - (seconds() - readings.length);
    this.draw();
  }

  draw() {
    const has = this.series.some(({ path }) => readings.some((reading) => figure(reading, path) !== null));
    this.box.hidden = !has;
    if (!has) return;
    const values = this.series.map(({ path }) => readings.map((reading) => figure(reading, path)));
    const all = values.flat().filter((value) => value !== null);
    const { ticks, share } = this.unit === "ms" ? logarithmic(all) : linear(all);
    const width = this.svg.clientWidth || this.width;
    this.width = width;
    this.svg.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    const span = seconds();
    const right = width - 5;
    const x = (place) => LEFT + (place + span - readings.length) / (span - 1) * (right - LEFT);
    const y = (value) => TOP + (1 - share(value)) * (HEIGHT - TOP - BOTTOM);
    const parts = [];
    for (const tick of ticks) {
      parts.push(made("line", { x1: LEFT, x2: right, y1: y(tick), y2: y(tick), class: "grid" }));
      parts.push(made("text", { x: LEFT - 6, y: y(tick) + 4, class: "axis end" }, tickText(tick)));
    }
    for (const part of [0.8, 0.6, 0.4, 0.2]) {
      const ago = span * part;
      const at = right - part * (right - LEFT);
      parts.push(made("text", { x: at, y: HEIGHT - 4, class: "axis middle" }, ago < 60 ? `−${ago} s` : `−${+(ago / 60).toFixed(1)} min`));
    }
    values.forEach((line, place) => {
      let path = "";
      let pen = "M";
      line.forEach((value, at) => {
        if (value === null) { pen = "M"; return; }
        path += `${pen}${x(at).toFixed(1)} ${y(value).toFixed(1)}`;
        pen = "L";
      });
      parts.push(made("path", { d: path, class: `line series${place}` }));
    });
    const shown = this.at !== null && readings[this.at] ? this.at : readings.length - 1;
    if (shown === this.at) parts.push(made("line", { x1: x(shown), x2: x(shown), y1: TOP, y2: HEIGHT - BOTTOM, class: "cursor" }));
    values.forEach((line, place) => {
      const value = line[shown];
      this.series[place].value.textContent = number(value);
      if (value !== null && value !== undefined) parts.push(made("circle", { cx: x(shown), cy: y(value), r: 3, class: `dot series${place}` }));
    });
    this.svg.replaceChildren(...parts);
    const said = this.series.map(({ name, value }) => `${name} ${value.textContent}`).join(", ");
    this.svg.setAttribute("aria-label", `${this.box.querySelector("strong").textContent}: ${said} ${this.unit}`.trim());
  }
}

const curves = [...document.querySelectorAll(".curve")].map((box) => new Curve(box));
let isDue = false;

// Several readings that arrive at once are drawn once.
function draw() {
  if (isDue) return;
  isDue = true;
  requestAnimationFrame(() => {
    isDue = false;
    for (const curve of curves) curve.draw();
  });
}

function follow() {
  const events = new EventSource("/v1/events");
  events.addEventListener("open", () => readings.splice(0));
  events.addEventListener("server", (event) => {
    readings.push(JSON.parse(event.data));
    if (readings.length > SECONDS_MAX) readings.shift();
    document.getElementById("main").dataset.readings = readings.length;
    draw();
  });
  // A browser tries again by itself, except after an answer that is no stream.
  events.addEventListener("error", () => {
    if (events.readyState === EventSource.CLOSED) setTimeout(follow, 5000);
  });
}

if (curves.length) follow();
