// The pages of the view counters in Debian's Chromium: they load without errors and without requests to others, show what was posted, fit a telephone,
// are readable in the dark and in the light, and axe finds nothing in them. `--shots DIR` keeps a picture of each.
import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { createServer, request as httpRequest } from "node:http";
import { createRequire } from "node:module";
import { chromium } from "playwright-core";

import { ask, counters, flag, root, run, stop, until } from "./service.mjs";

const PHONE = { width: 360, height: 740 };
const DESK = { width: 1280, height: 900 };
const axe = createRequire(import.meta.url).resolve("axe-core/axe.min.js");
const shots = process.argv.includes("--shots") ? flag("shots") : null;

/// Opens a page, and collects what goes wrong in it. `change` changes each answer of /status on its way.
async function open(browser, url, { change, ...options } = {}) {
  // The policy of the pages forbids scripts of others, axe's among them, so it is switched off where axe looks.
  const context = await browser.newContext({ viewport: DESK, ...options });
  const page = await context.newPage();
  const wrong = [];
  const origin = new URL(url).origin;
  page.on("console", (message) => message.type() === "error" && wrong.push(`console: ${message.text()}`));
  page.on("pageerror", (error) => wrong.push(`script: ${error}`));
  page.on("request", (request) => {
    const to = new URL(request.url());
    if (to.origin !== origin && to.protocol !== "data:") wrong.push(`request to ${request.url()}`);
  });
  if (change) {
    await page.route("**/status*", async (route) => {
      const response = await route.fetch();
      const json = await response.json();
      change(json);
      await route.fulfill({ response, json });
    });
  }
  await page.goto(url);
  const close = async () => {
    // A poll may be under way.
    await page.unrouteAll({ behavior: "ignoreErrors" });
    await context.close();
  };
  return { page, wrong, close };
}

async function fits(page, what) {
  const [wide, shown] = await page.evaluate(() => [document.documentElement.scrollWidth, document.documentElement.clientWidth]);
  assert.ok(wide <= shown, `${what} is ${wide} pixels wide in ${shown}`);
}

async function accessible(page, what) {
  await page.addScriptTag({ path: axe });
  const { violations } = await page.evaluate(() => axe.run());
  assert.deepEqual(violations.map(({ id, nodes }) => [id, nodes.map((node) => node.html)]), [], what);
}

async function shot(page, name) {
  if (shots) await page.screenshot({ path: `${shots}/${name}.png`, fullPage: true });
}

/// The time zone in which it is noon, so that no day ends while the pages show the views of today.
function zoneAtNoon() {
  const ahead = 12 - new Date().getUTCHours();
  // The names of these zones have the sign of the way to Greenwich: it is later in Etc/GMT-5.
  return `Etc/GMT${ahead > 0 ? "-" : "+"}${Math.abs(ahead)}`;
}

const text = (page, id) => page.textContent(`#${id}`);
const cells = (page, id) => page.$$eval(`#${id} tr`, (rows) => rows.map((row) => [...row.cells].map((cell) => cell.textContent)));

/// Another instance, as /status has it.
function instance(name, uptime_seconds, views, more) {
  const others = { version: "0.1.0", addresses: [`192.0.2.${name.charCodeAt(0) - 96}:8080`], saved: views, seen_seconds: 2.4 };
  return { name: name.repeat(32), uptime_seconds, views, ...others, ...more };
}

/// What a page shows of several instances, and how it adds up their views a second.
async function instances(browser, url) {
  const polls = [
    // Nothing is known after one report.
    [[instance("a", 100, 1000), instance("b", 50, 500)], "–"],
    // b has not reported again.
    [[instance("a", 102, 1020), instance("b", 50, 500)], "10"],
    [[instance("a", 104, 1040), instance("b", 55, 550)], "20"],
    // A report of a that is older, as a has not answered itself; a new instance.
    [[instance("a", 103, 1030), instance("b", 57, 610), instance("c", 1, 400)], "40"],
    // b is gone, and its successor has another name.
    [[instance("a", 106, 1060), instance("c", 6, 450), instance("d", 3, 9000)], "20"],
    [[instance("a", 108, 1060), instance("c", 8, 450), instance("d", 5, 9001)], "0.5"],
  ];
  let at = 0;
  const change = (status) => Object.assign(status, { name: "a".repeat(32), instances: polls[at][0] });
  const { page, wrong, close } = await open(browser, `${url}/`, { change });
  await page.waitForSelector("#figures:not([hidden])");
  for (const [shown, rate] of polls) {
    await page.dispatchEvent("#top-days", "change");
    const last = shown.at(-1);
    await page.waitForFunction(([name, rate]) => {
      const row = document.querySelector("#instances tr:last-child");
      return row && row.querySelector("code").title === name && document.querySelector("#rate").textContent === rate;
    }, [last.name, rate]);
    const names = await page.$$eval("#instances code", (codes) => codes.map((code) => code.title));
    assert.deepEqual(names, shown.map(({ name }) => name));
    at = Math.min(at + 1, polls.length - 1);
  }
  assert.deepEqual(await cells(page, "instances"), [
    ["192.0.2.1:8080 this one aaaaaaaa", "0.1.0", "1 min 48 s", "0", "1,060", "1,060", "now"],
    ["192.0.2.3:8080 cccccccc", "0.1.0", "8 s", "0", "450", "450", "2 s ago"],
    ["192.0.2.4:8080 dddddddd", "0.1.0", "5 s", "0.5", "9,001", "9,001", "2 s ago"],
  ]);
  assert.deepEqual(wrong, []);
  await close();
}

async function figures(browser, url) {
  const { page, wrong, close } = await open(browser, `${url}/`);
  await page.waitForSelector("#figures:not([hidden])");
  assert.equal(await text(page, "state"), "ready");
  await page.selectOption("#kind", "ads");
  await page.waitForFunction(() => document.querySelector("#total").textContent === "1,239");
  assert.equal(await text(page, "items"), "3");
  const rows = (id) => cells(page, id);
  await page.waitForFunction(() => document.querySelectorAll("#top tr").length === 3);
  assert.deepEqual(await rows("top"), [["7", "1,234"], ["8", "4"], ["9", "1"]]);
  const days = await rows("days");
  assert.equal(days.length, 30);
  assert.equal(days[0][1], "1,239");
  assert.ok(days.slice(1).every(([, views]) => views === "0"));
  assert.match(await text(page, "days-text"), /^1,239 saved views in 30 days, 1,239 on the best day$/);
  assert.match(await page.getAttribute("#curve polyline", "points"), /^0\.0,150\.0 .* 600\.0,10\.0$/);
  assert.deepEqual((await rows("queue")).map(([kind]) => kind), ["ads", "news"]);
  assert.deepEqual(await page.$$eval("#parts li", (parts) => parts.map((part) => part.textContent)), ["queue: works", "store: works", "saving: works"]);
  await page.selectOption("#kind", "news");
  await page.waitForFunction(() => document.querySelector("#total").textContent === "5");
  await page.selectOption("#top-days", "today");
  await page.waitForFunction(() => document.querySelector("#top").textContent === "15");
  await page.waitForFunction(() => document.querySelector("#rate").textContent !== "–");
  const { name, version } = await ask(`${url}/status`);
  const [[first, ...others], ...more] = await rows("instances");
  assert.equal(first, `${new URL(url).host} this one ${name.slice(0, 8)}`);
  assert.deepEqual(others.toSpliced(1, 1), [version, "0", "1,244", "1,244", "now"]);
  assert.match(others[1], /^(\d+ min )?\d+ s$/);
  assert.deepEqual(more, [], "the service is one instance");
  assert.deepEqual(wrong, []);
  await close();
}

/// Adds instances to the one that there is, with figures of many digits.
function crowd(status) {
  const addresses = ["[2001:db8:1234:5678:9abc:def0:1234:5678]:18090", "192.0.2.2:18090"];
  status.instances.push(instance("b", 8_640_000, 123_456_789_012, { addresses }), instance("c", 75, 0, { seen_seconds: 9, addresses: [] }));
}

async function looks(browser, url, path, ready) {
  for (const [colorScheme, size, viewport] of [["light", "desk", DESK], ["dark", "phone", PHONE]]) {
    const what = `${path} ${colorScheme} ${size}`;
    const { page, wrong, close } = await open(browser, `${url}${path}`, { colorScheme, viewport, bypassCSP: true, change: crowd });
    await page.waitForSelector(ready);
    await page.evaluate(() => document.querySelectorAll("details").forEach((details) => (details.open = true)));
    for (const width of [DESK.width, 800, 700, 500, viewport.width]) {
      await page.setViewportSize({ ...viewport, width });
      await fits(page, `${what} at ${width}`);
    }
    const back = await page.evaluate(() => getComputedStyle(document.body).backgroundColor);
    assert.equal(back, colorScheme === "dark" ? "rgb(16, 20, 26)" : "rgb(255, 255, 255)", what);
    await accessible(page, what);
    await shot(page, what.replaceAll(/[/ ]+/g, "-"));
    assert.deepEqual(wrong, [], what);
    await close();
  }
}

async function api(browser, url) {
  const { page, wrong, close } = await open(browser, `${url}/docs`);
  await page.waitForSelector("#operations article");
  const openapi = await ask(`${url}/openapi.json`);
  const operations = Object.values(openapi.paths).flatMap((methods) => Object.values(methods));
  const named = (name) => operations.filter(({ tags }) => tags.includes(name)).map((operation) => operation.operationId);
  const groups = openapi.tags.map(({ name, description }) => [description, named(name)]);
  const shown = await page.$$eval("#operations > section", (found) => found.map((section) =>
    [section.querySelector("h2").textContent, [...section.querySelectorAll("article")].map((article) => article.id)]));
  assert.deepEqual(shown, groups);
  assert.equal(await page.$$eval("#operations article", (found) => found.length), operations.length);
  assert.equal(await page.$$eval("#schemas article", (found) => found.length), Object.keys(openapi.components.schemas).length);
  for (const link of await page.$$eval("main a[href^='#']", (links) => links.map((link) => link.getAttribute("href")))) {
    assert.ok(await page.$(link), `${link} leads nowhere`);
  }
  assert.deepEqual(wrong, []);
  await close();
}

async function policy(browser, url) {
  const { page, wrong, close } = await open(browser, `${url}/`);
  const ran = await page.evaluate(() => {
    const script = document.createElement("script");
    script.textContent = "window.ran = true";
    document.body.append(script);
    return window.ran === true;
  });
  assert.equal(ran, false, "a script in the page runs");
  assert.match(wrong.join(), /Content Security Policy/);
  await close();
}

async function token(browser) {
  // printf %s secret | sha256sum
  const { mkdtemp, writeFile } = await import("node:fs/promises");
  const { createHash } = await import("node:crypto");
  const file = `${await mkdtemp("/tmp/handfast-web-")}/tokens.txt`;
  await writeFile(file, createHash("sha256").update("secret").digest("hex"));
  const service = await counters("--tokens", file);
  await ask(`${service.url}/v1/ads/7/views`, { method: "POST", headers: { authorization: "Bearer secret" } });
  const { page, close } = await open(browser, `${service.url}/`);
  await page.waitForSelector("#access:not([hidden])");
  for (const [word, then] of [["wrong", "#refused:not(:empty)"], ["secret", "#figures:not([hidden])"]]) {
    await page.fill("#token", word);
    await page.press("#token", "Enter");
    await page.waitForSelector(then);
  }
  assert.equal(await page.inputValue("#token"), "");
  await close();
  await stop(service);
}

async function away(browser, service) {
  const { page, close } = await open(browser, `${service.url}/`);
  await page.waitForSelector("#figures:not([hidden])");
  await stop(service);
  await page.waitForFunction(() => document.querySelector("#state").textContent === "the service does not answer");
  await close();
}

/// The snippet of the guide, in a page of a site whose proxy passes on the requests that count.
async function snippet(browser) {
  const guide = await readFile(`${root}docs/counters.md`, "utf8");
  const [, script] = guide.match(/```html\n(<script>[^]*?<\/script>)\n```/);
  const [, pixel] = guide.match(/```html\n(<img src="\/v1\/.*?pixel.gif".*?>)\n```/);
  let behind = null;
  const site = createServer((request, response) => {
    if (/^(POST \/v1\/[^/]+\/[^/]+\/views|GET \/v1\/[^/]+\/[^/]+\/pixel\.gif)$/.test(`${request.method} ${request.url}`)) {
      const onward = { method: request.method, headers: { ...request.headers, host: "behind" } };
      request.pipe(httpRequest(`${behind.url}${request.url}`, onward, (answer) => {
        response.writeHead(answer.statusCode, answer.headers);
        answer.pipe(response);
      }));
      return;
    }
    response.setHeader("content-type", "text/html");
    response.end(`<!doctype html><html lang="en"><title>Ad 4711</title><link rel="icon" href="data:,">${request.url === "/mail" ? pixel : script}</html>`);
  });
  await new Promise((resolve) => site.listen(0, "127.0.0.1", resolve));
  const origin = `http://127.0.0.1:${site.address().port}`;
  behind = await counters("--allow-origin", origin, "--pixel", "ads");
  const { page, wrong, close } = await open(browser, `${origin}/ads/4711`);
  const total = async () => (await ask(`${behind.url}/v1/ads/4711`)).total;
  await until("the page is counted", async () => (await total()) === 1);
  await page.reload();
  await until("it is counted again", async () => (await total()) === 2);
  await page.goto(`${origin}/mail`);
  await until("the picture is counted", async () => (await total()) === 3);
  assert.deepEqual(wrong, []);
  await close();
  site.closeAllConnections();
  site.close();
  await stop(behind);
}

await run(async () => {
  const service = await counters("--time-zone", zoneAtNoon());
  const { url } = service;
  const post = (item, n) => ask(`${url}/v1/${item}/views`, {
    method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify({ n }),
  });
  for (const [item, n] of [["ads/7", 1234], ["ads/8", 4], ["ads/9", 1], ["news/1", 5]]) await post(item, n);
  await until("all is saved", async () => (await ask(`${url}/status`)).saved === 1244);
  const browser = await chromium.launch({ executablePath: flag("chromium"), args: ["--no-sandbox"] });
  try {
    await figures(browser, url);
    await instances(browser, url);
    await api(browser, url);
    await looks(browser, url, "/", "#top tr td.number");
    await looks(browser, url, "/docs", "#schemas article");
    await policy(browser, url);
    await token(browser);
    await snippet(browser);
    await away(browser, service);
  } finally {
    await browser.close();
  }
});
