// The middleware of the examples: each page that a site serves is counted, and no page waits for the counters.
import assert from "node:assert/strict";
import { createServer } from "node:net";

import { ask, counters, flag, root, run, start, stop, until } from "./service.mjs";

const FIREFOX = "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0";
const GOOGLEBOT = "Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)";

const SITES = {
  express: (env) => start(process.execPath, ["--import", `${root}tests/clients/web/resolve.mjs`, `${root}examples/counters/express.mjs`], {
    env, pattern: /listening on (http:\S+)/,
  }),
  fastapi: (env) => start(flag("python"), [`${root}examples/counters/fastapi_app.py`], { env, pattern: /running on (http:\S+)/ }),
};

async function page(site, path, agent = FIREFOX) {
  const answer = await fetch(`${site.url}${path}`, { headers: { "user-agent": agent } });
  return [answer.status, await answer.text()];
}

function environment(url) {
  return { ...process.env, COUNTERS_URL: url, PORT: "0" };
}

async function counts(name, service) {
  const site = await SITES[name](environment(service.url));
  for (let view = 1; view <= 3; view += 1) {
    assert.deepEqual(await page(site, "/ads/7"), [200, "<h1>Ad 7</h1>"]);
  }
  await page(site, "/ads/8", GOOGLEBOT);
  assert.equal((await page(site, "/nowhere/7"))[0], 404);
  await page(site, "/ads/9", "Safari");
  const total = async (id) => (await ask(`${service.url}/v1/ads/${id}`)).total;
  await until(`${name} counts the pages`, async () => (await total(7)) === 1 && (await total(9)) === 1);
  await until("all views have arrived", async () => /reason="repeated"} 2\n/.test(await (await fetch(`${service.url}/metrics`)).text()));
  await until("the bot has arrived", async () => /reason="bot"} 1\n/.test(await (await fetch(`${service.url}/metrics`)).text()));
  assert.deepEqual([await total(7), await total(8), await total(9)], [1, 0, 1], name);
  await stop(site);
}

/// A service that takes connections and never answers keeps no page waiting.
async function waitsForNothing(name) {
  const silent = createServer(() => {});
  await new Promise((resolve) => silent.listen(0, "127.0.0.1", resolve));
  const site = await SITES[name](environment(`http://127.0.0.1:${silent.address().port}`));
  for (let view = 1; view <= 3; view += 1) assert.equal((await page(site, "/ads/7"))[0], 200);
  site.child.kill("SIGKILL");
  silent.close();
}

await run(async () => {
  for (const name of Object.keys(SITES)) {
    const service = await counters("--visitor-window", "ads=1h", "--bots", "refuse");
    await counts(name, service);
    await stop(service);
    await waitsForNothing(name);
  }
});
