// A client that openapi-python-client makes from the document of a running service, which it then drives.
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { spawnSync } from "node:child_process";

import { counters, flag, root, run, stop } from "./service.mjs";

const TOKEN = "a-token-of-a-client";

await run(async () => {
  const directory = await mkdtemp(join(tmpdir(), "handfast-client-"));
  const tokens = join(directory, "tokens.txt");
  await writeFile(tokens, `${createHash("sha256").update(TOKEN).digest("hex")}  -\n`);
  const service = await counters("--tokens", tokens, "--public-reads", "--pixel", "ads");
  const script = `${root}tests/clients/web/generated.py`;
  const { status, stdout, stderr, error } = spawnSync(flag("python"), [script, service.url, TOKEN, directory], { encoding: "utf8" });
  assert.equal(status, 0, `${error ?? ""}${stdout}${stderr}`);
  await stop(service);
  await rm(directory, { recursive: true });
});
