// The dashboard of `handfast serve --http` in Debian's Chromium, while a program works with the API: numbers move, a failed job is retried by keyboard, a document is
// edited, users need their roles, tables are there without JavaScript; each page fits a telephone, asks no other host, and axe finds nothing in it in the dark and in
// the light. `--shots DIR` keeps a picture of each.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtemp, writeFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { chromium } from "playwright-core";

import { ask, flag, run, start, stop, until } from "./service.mjs";

const PHONE = { width: 360, height: 740 };
const DESK = { width: 1280, height: 900 };
const PATTERN = /(http:\/\/[0-9.:]+)[^]*\nready\n/;
const axe = createRequire(import.meta.url).resolve("axe-core/axe.min.js");
const shots = process.argv.includes("--shots") ? flag("shots") : null;
const PAGES = [
  "/", "/queues", "/queues/shop/mails", "/queues/shop/mails?state=FAILED", "/queues/shop/mails/jobs/bad", "/queues/shop/paused", "/ledgers", "/ledgers/shop/tx",
  "/ledgers/shop/tx?show=entries", "/two-phase", "/two-phase/shop/transfers", "/sync", "/sync/shop/users", "/collections", "/collections/shop/mails",
  "/collections/shop/none", "/collections/shop/mails/explain?filter=%7B%22state%22:%22FAILED%22%7D", "/collections/shop/mails/documents/bad", "/operations", "/docs",
];

/// Starts the server on a directory of its own.
async function serve(prepare = async () => [], flags = []) {
  const directory = await mkdtemp(join(tmpdir(), "handfast-web-"));
  const data = join(directory, "data");
  await prepare(directory, data);
  const args = ["serve", "--data", data, "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", ...flags];
  return start(flag("handfast"), args, { pattern: PATTERN });
}

const post = (url, path, body, headers = {}) =>
  ask(`${url}/v1/${path}`, { method: "POST", headers: { "content-type": "application/json", ...headers }, body: JSON.stringify(body) });

/// Fills a server with something for each page.
async function fill(url) {
  const add = (job) => post(url, "shop/queues/mails/jobs", job);
  await add({ _id: "bad", type: "mail", details: { to: "<b>ann</b>" } });
  for (let number = 0; number < 60; number += 1) await add({ type: number % 2 ? "mail" : "<script>", details: { number } });
  const { jobs } = await post(url, "shop/queues/mails/claims", { worker: "w", types: ["mail"], count: 5 });
  await post(url, "shop/queues/mails/claims/fail", { job: jobs[0], error: "<script>document.title = 'wrong'</script>", giveUp: true });
  assert.equal(jobs[0]._id, "bad");
  await post(url, "shop/queues/mails/claims/complete", { job: jobs[1] });
  await post(url, "shop/queues/paused/jobs", { type: "mail" });
  await post(url, "shop/queues/paused/pause", { reason: "the server is moved" });
  const changes = [{ account: "cash", value: -500, asset: "EUR" }, { account: "ann", value: 500, asset: "EUR" }];
  await post(url, "shop/ledgers/tx/entries", { _id: "pay 1", changes });
  await post(url, "shop/two-phase/transfers/transactions", { _id: 1, source: "a", destination: "b", value: 5 });
  await post(url, "shop/synced/users/open", { links: [{ collection: "comments", key: "user", fields: { name: "userName" } }] });
}

/// Works with the server until it is told to stop: some fifty jobs a second, so that the browser has the processors.
function load(url) {
  const working = { stop: false };
  const work = async () => {
    for (let number = 0; !working.stop; number += 1) {
      await post(url, "shop/queues/load/jobs", { type: "mail", details: { number } });
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
  };
  working.ended = work();
  return working;
}

/// Opens a page, and collects what goes wrong in it.
async function open(browser, url, path, options = {}) {
  const context = await browser.newContext({ viewport: DESK, ...options });
  const page = await context.newPage();
  const wrong = [];
  page.on("console", (message) => message.type() === "error" && wrong.push(`console: ${message.text()}`));
  page.on("pageerror", (error) => wrong.push(`script: ${error}`));
  page.on("request", (request) => new URL(request.url()).origin === url || wrong.push(`request to ${request.url()}`));
  await page.goto(`${url}${path}`);
  return { page, wrong, close: () => context.close() };
}

/// A page in both sizes and both themes. It is loaded once; axe looks at it in each size and each theme, and not in every pair of them, as a run takes a second.
async function looks(browser, url, path) {
  // The policy forbids scripts of others, axe's among them.
  const { page, wrong, close } = await open(browser, url, path, { bypassCSP: true });
  if (path === "/") await page.waitForSelector(".curve:not([hidden])");
  if (path === "/docs") await page.waitForSelector("#schemas article");
  await page.addScriptTag({ path: axe });
  for (const [colorScheme, size, viewport] of [["light", "desk", DESK], ["dark", "desk", DESK], ["dark", "phone", PHONE], ["light", "phone", PHONE]]) {
    const what = `${path} ${colorScheme} ${size}`;
    await page.emulateMedia({ colorScheme });
    await page.setViewportSize(viewport);
    const [wide, shown] = await page.evaluate(() => [document.documentElement.scrollWidth, document.documentElement.clientWidth]);
    assert.ok(wide <= shown, `${what} is ${wide} pixels wide in ${shown}`);
    if ((size === "desk") === (colorScheme === "light")) {
      const { violations } = await page.evaluate(() => axe.run());
      assert.deepEqual(violations.map(({ id, nodes }) => [id, nodes.map((node) => node.html)]), [], what);
    }
    if (shots) await page.screenshot({ path: `${shots}/${what.replaceAll(/[^a-z0-9]+/gi, "-")}.png` });
    assert.deepEqual(wrong, [], what);
  }
  assert.notEqual(await page.title(), "wrong");
  await close();
}

/// Numbers of the tables and the curves follow what the program does.
async function moves(browser, url) {
  const overview = await open(browser, url, "/");
  await overview.page.waitForFunction(() => Number(document.getElementById("main").dataset.readings) >= 3);
  await overview.page.waitForFunction(() => Number.parseFloat(document.querySelector("#commands-curve .legend li:nth-child(2) b").textContent) > 0);
  const total = () => overview.page.textContent("#commands tr:has(td:text-is('handfastEnqueueJob')) td:nth-child(2)");
  const before = await total();
  await until("the table of commands moves", async () => (await total()) !== before);
  assert.deepEqual(overview.wrong, []);
  await overview.close();
  const queue = await open(browser, url, "/queues/shop/load");
  const due = () => queue.page.textContent("#depth .tile dd");
  const first = await due();
  await until("the jobs that are due move", async () => (await due()) !== first);
  assert.equal(await queue.page.getAttribute("#freshness", "data-state"), "live");
  assert.deepEqual(queue.wrong, []);
  await queue.close();
}

/// A failed job is found and retried by keyboard alone.
async function keyboard(browser, url) {
  const { page, wrong, close } = await open(browser, url, "/");
  const tabTo = async (selector) => {
    for (let press = 0; press < 200; press += 1) {
      if (await page.evaluate((selector) => document.activeElement.matches(selector), selector)) return;
      await page.keyboard.press("Tab");
    }
    assert.fail(`no Tab leads to ${selector}`);
  };
  await page.keyboard.press("Tab");
  assert.equal(await page.evaluate(() => document.activeElement.textContent), "Skip to the content");
  await page.keyboard.press("Enter");
  assert.equal(await page.evaluate(() => document.activeElement.id), "main");
  await page.goto(`${url}/queues`);
  for (const selector of ["a[href='/queues/shop/mails']", "a[href='/queues/shop/mails?state=FAILED']", "#retry-bad"]) {
    await tabTo(selector);
    const seen = await page.evaluate(() => getComputedStyle(document.activeElement).outlineStyle);
    assert.notEqual(seen, "none", `the focus on ${selector} is not visible`);
    await Promise.all([page.waitForNavigation(), page.keyboard.press("Enter")]);
  }
  assert.match(await page.textContent("#notice"), /waits in its queue again/);
  assert.equal((await ask(`${url}/v1/shop/queues/mails/jobs/bad`)).job.state, "TODO");
  assert.equal(await page.evaluate(() => location.search), "", "a load again shows no message");
  await page.goto(`${url}/collections/shop/mails`);
  await page.keyboard.press("/");
  await page.keyboard.type('{"type": "mail", "state": "DONE"}');
  await Promise.all([page.waitForNavigation(), page.keyboard.press("Enter")]);
  assert.equal(await page.locator(".documents tbody tr").count(), 1);
  assert.deepEqual(wrong, []);
  await close();
}

async function edits(browser, url) {
  const path = "/collections/shop/mails/documents/bad";
  const { page, wrong, close } = await open(browser, url, path);
  const change = async (from, to) => {
    const text = await page.inputValue("#text");
    assert.ok(text.includes(from), text);
    await page.fill("#text", text.replace(from, to));
    await Promise.all([page.waitForNavigation(), page.click("text=Save")]);
  };
  const other = await open(browser, url, path);
  await change("<b>ann</b>", "<i>bob</i>");
  assert.match(await page.textContent("#notice"), /saved/);
  assert.equal((await ask(`${url}/v1/shop/queues/mails/jobs/bad`)).job.details.to, "<i>bob</i>");
  // The other page has the document as it was.
  const text = await other.page.inputValue("#text");
  await other.page.fill("#text", text.replace("<b>ann</b>", "eve"));
  await Promise.all([other.page.waitForNavigation(), other.page.click("text=Save")]);
  assert.match(await other.page.textContent("#wrong"), /somebody has changed the document/);
  assert.equal((await ask(`${url}/v1/shop/queues/mails/jobs/bad`)).job.details.to, "<i>bob</i>");
  await other.close();
  assert.deepEqual(wrong, []);
  await close();
}

async function withoutScript(browser, url) {
  const { page, close } = await open(browser, url, "/", { javaScriptEnabled: false });
  assert.ok((await page.locator("#commands tbody tr").count()) > 0);
  assert.match(await page.textContent("noscript"), /need JavaScript/);
  await page.goto(`${url}/queues/shop/mails?state=TODO`);
  assert.equal(await page.locator("#jobs tbody tr").count(), 50);
  await Promise.all([page.waitForNavigation(), page.click("text=Next page")]);
  assert.ok((await page.locator("#jobs tbody tr").count()) > 0);
  await page.goto(`${url}/queues/shop/paused`);
  await Promise.all([page.waitForNavigation(), page.click("#resume")]);
  assert.match(await page.textContent("#notice"), /resumed/);
  await close();
}

/// A list has each document once, also if others come and go between its pages.
async function pages(url) {
  const expected = [];
  for (let number = 0; number < 30; number += 1) {
    const id = number % 3 ? `job ${number}` : number;
    await post(url, "shop/queues/listed/jobs", { _id: id, type: "mail" });
    expected.push(id);
  }
  const seen = [];
  let after = "";
  for (let number = 0; after !== undefined; number += 1) {
    const { jobs, next } = await ask(`${url}/v1/shop/queues/listed/jobs?state=TODO&limit=7${after && `&after=${after}`}`);
    seen.push(...jobs.map((job) => job._id));
    after = next;
    // One that comes before the next page, and one that leaves the pages before.
    await post(url, "shop/queues/listed/jobs", { _id: `zoo ${number}`, type: "mail" });
    const cancel = `${url}/v1/shop/queues/listed/jobs/${encodeURIComponent(JSON.stringify(seen[0]))}/cancel`;
    await ask(cancel, { method: "POST" });
  }
  const sorted = (ids) => ids.map(String).toSorted();
  assert.deepEqual(sorted(seen), sorted(expected));
}

/// Another site cannot send a form of the dashboard.
async function otherSites(browser, url) {
  const context = await browser.newContext();
  const page = await context.newPage();
  await page.route("http://other.example/**", (route) =>
    route.fulfill({ contentType: "text/html", body: `<form method="post" action="${url}/queues/shop/mails/pause"><button>Win</button></form>` }));
  await page.goto("http://other.example/");
  await Promise.all([page.waitForNavigation(), page.click("button")]);
  assert.match(await page.textContent("main"), /sent by another page/);
  assert.equal((await ask(`${url}/v1/shop/queues/mails/depth`)).paused, false);
  await context.close();
}

async function policy(browser, url) {
  const { page, close } = await open(browser, url, "/queues");
  const ran = await page.evaluate(() => {
    const script = document.createElement("script");
    script.textContent = "window.ran = true";
    document.body.append(script);
    return window.ran === true;
  });
  assert.equal(ran, false, "a script in the page runs");
  for (const path of ["/", "/queues", "/assets/live.js"]) {
    const header = (await fetch(`${url}${path}`)).headers.get("content-security-policy");
    assert.match(header, /^default-src 'none'; script-src 'self';/);
    assert.doesNotMatch(header, /unsafe/);
  }
  await close();
}

/// The reader's choice of colors holds on the next page.
async function themes(browser, url) {
  const { page, close } = await open(browser, url, "/queues", { colorScheme: "light" });
  const back = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  const light = await back();
  await page.click("#theme");
  await page.goto(`${url}/ledgers`);
  assert.notEqual(await back(), light);
  assert.match(await page.textContent("#theme"), /dark/);
  await close();
}

async function users(browser) {
  const handfast = flag("handfast");
  const service = await serve(async (directory, data) => {
    for (const [name, role] of [["boss", "root"], ["reader", "readAnyDatabase"]]) {
      const file = join(directory, `${name}.txt`);
      await writeFile(file, `${name}-s3cret`);
      execFileSync(handfast, ["user", "add", name, "--role", role, "--data", data, "--password-file", file]);
    }
  }, ["--auth"]);
  const { url } = service;
  const login = (name) => ({ authorization: `Basic ${Buffer.from(`${name}:${name}-s3cret`).toString("base64")}` });
  await post(url, "shop/queues/mails/jobs", { _id: "one", type: "mail" }, login("boss"));
  for (const path of ["/", "/queues", "/v1/events", "/collections/shop/mails"]) {
    const answer = await fetch(`${url}${path}`);
    assert.equal(answer.status, 401, path);
    assert.match(answer.headers.get("www-authenticate"), /^Basic /);
    await answer.text();
  }
  const credentials = (name) => ({ httpCredentials: { username: name, password: `${name}-s3cret` } });
  const reader = await open(browser, url, "/queues/shop/mails/jobs/one", credentials("reader"));
  await Promise.all([reader.page.waitForNavigation(), reader.page.click("#cancel-one")]);
  assert.equal(await reader.page.textContent("h1"), "the user may not do this");
  assert.match(await reader.page.textContent("main"), /Nothing was changed\. ?Ask for a role/);
  await reader.page.goto(`${url}/`);
  assert.match(await reader.page.textContent("main"), /need the role clusterMonitor/);
  await reader.close();
  const boss = await open(browser, url, "/queues/shop/mails/jobs/one", credentials("boss"));
  await Promise.all([boss.page.waitForNavigation(), boss.page.click("#cancel-one")]);
  assert.match(await boss.page.textContent("#notice"), /is canceled/);
  await boss.page.goto(`${url}/`);
  await boss.page.waitForSelector(".curve:not([hidden])");
  await boss.close();
  await stop(service);
}

/// A page says that the server is gone.
async function away(browser, service) {
  const { page, close } = await open(browser, service.url, "/queues");
  await stop(service);
  await page.waitForSelector("#freshness[data-state='bad']");
  await close();
}

await run(async () => {
  const service = await serve();
  const { url } = service;
  await fill(url);
  const browser = await chromium.launch({ executablePath: flag("chromium"), args: ["--no-sandbox"] });
  try {
    const working = load(url);
    await moves(browser, url);
    for (const path of PAGES) await looks(browser, url, path);
    await keyboard(browser, url);
    await edits(browser, url);
    await withoutScript(browser, url);
    await pages(url);
    await otherSites(browser, url);
    await policy(browser, url);
    await themes(browser, url);
    working.stop = true;
    await working.ended;
    await users(browser);
    await away(browser, service);
  } finally {
    await browser.close();
  }
});
