// Starts programs for a test and ends them with it: `handfast counters serve`, and the web servers of the examples.
import { spawn } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";

const PATIENCE_MS = 60_000;
const started = [];

export const root = new URL("../../../", import.meta.url).pathname;

/// Returns the value of a flag of the command line.
export function flag(name) {
  const at = process.argv.indexOf(`--${name}`);
  if (at < 0) throw new Error(`--${name} is missing`);
  return process.argv[at + 1];
}

/// Starts a program, and waits for a line that says where it listens.
export async function start(program, args, { pattern, ...options }) {
  const child = spawn(program, args, { stdio: ["ignore", "pipe", "pipe"], ...options });
  let said = "";
  const ended = new Promise((resolve) => child.once("exit", (code) => resolve(code)));
  const running = { child, ended, said: () => said };
  started.push(running);
  const address = await new Promise((resolve, reject) => {
    const listen = (chunk) => {
      said += chunk;
      const found = said.match(pattern);
      if (found) resolve(found[1]);
    };
    child.stdout.on("data", listen);
    child.stderr.on("data", listen);
    child.once("error", reject);
    ended.then((code) => reject(new Error(`${program} ended with ${code}: ${said}`)));
    setTimeout(() => reject(new Error(`${program} does not start: ${said}`)), PATIENCE_MS).unref();
  });
  return { ...running, url: address.startsWith("http") ? address : `http://${address}` };
}

/// Starts the service on a directory of its own, which saves every 20 milliseconds.
export async function counters(...flags) {
  const directory = await mkdtemp(join(tmpdir(), "handfast-web-"));
  const args = ["counters", "serve", "--data", join(directory, "data"), "--listen", "127.0.0.1:0", "--flush-interval", "20ms"];
  const service = await start(flag("handfast"), [...args, ...flags], { pattern: /listens on ([^ ,]+)[^]*\nready\n/ });
  return { ...service, directory };
}

/// Sends a request, and returns the JSON of its answer.
export async function ask(url, options) {
  const answer = await fetch(url, options);
  const text = await answer.text();
  if (!answer.ok) throw new Error(`${url}: ${answer.status} ${text}`);
  return JSON.parse(text);
}

/// Waits until a condition holds.
export async function until(what, condition) {
  const end = Date.now() + PATIENCE_MS;
  while (!(await condition())) {
    if (Date.now() > end) throw new Error(`it does not come about that ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

/// Asks a program to stop, which must have been alive and go cleanly.
export async function stop({ child, ended, said, directory }) {
  child.kill("SIGTERM");
  const code = await ended;
  if (directory && code !== 0) throw new Error(`the service went with ${code}: ${said()}`);
  if (directory) await rm(directory, { recursive: true });
}

/// Runs a test, and ends all programs that it has left.
export async function run(test) {
  try {
    await test();
  } finally {
    for (const { child } of started) child.kill("SIGKILL");
  }
}
