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

/// Opens a page, and collects what goes wrong in it.
async function open(browser, url, options) {
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
  await page.goto(url);
  return { page, wrong, close: () => context.close() };
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

async function figures(browser, url) {
  const { page, wrong, close } = await open(browser, `${url}/`);
  await page.waitForSelector("#figures:not([hidden])");
  assert.equal(await text(page, "state"), "ready");
  await page.selectOption("#kind", "ads");
  await page.waitForFunction(() => document.querySelector("#total").textContent === "1,239");
  assert.equal(await text(page, "items"), "3");
  const rows = (id) => page.$$eval(`#${id} tr`, (rows) => rows.map((row) => [...row.cells].map((cell) => cell.textContent)));
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
  assert.deepEqual(wrong, []);
  await close();
}

async function looks(browser, url, path, ready) {
  for (const [colorScheme, size, viewport] of [["light", "desk", DESK], ["dark", "phone", PHONE]]) {
    const what = `${path} ${colorScheme} ${size}`;
    const { page, wrong, close } = await open(browser, `${url}${path}`, { colorScheme, viewport, bypassCSP: true });
    await page.waitForSelector(ready);
    await page.evaluate(() => document.querySelectorAll("details").forEach((details) => (details.open = true)));
    await fits(page, what);
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
  const operations = Object.values(openapi.paths).flatMap((methods) => Object.values(methods)).map((operation) => operation.operationId);
  assert.deepEqual(await page.$$eval("#operations article", (found) => found.map((article) => article.id)), operations);
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
  let behind = null;
  const site = createServer((request, response) => {
    if (request.method === "POST" && /^\/v1\/[^/]+\/[^/]+\/views$/.test(request.url)) {
      const onward = { method: "POST", headers: { ...request.headers, host: "behind" } };
      request.pipe(httpRequest(`${behind.url}${request.url}`, onward, (answer) => {
        response.writeHead(answer.statusCode, answer.headers);
        answer.pipe(response);
      }));
      return;
    }
    response.setHeader("content-type", "text/html");
    response.end(`<!doctype html><html lang="en"><title>Ad 4711</title><link rel="icon" href="data:,">${script}</html>`);
  });
  await new Promise((resolve) => site.listen(0, "127.0.0.1", resolve));
  const origin = `http://127.0.0.1:${site.address().port}`;
  behind = await counters("--allow-origin", origin);
  const { page, wrong, close } = await open(browser, `${origin}/ads/4711`);
  const total = async () => (await ask(`${behind.url}/v1/ads/4711`)).total;
  await until("the page is counted", async () => (await total()) === 1);
  await page.reload();
  await until("it is counted again", async () => (await total()) === 2);
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
