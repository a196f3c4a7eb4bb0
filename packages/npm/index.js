// A throw-away MongoDB-compatible server with transactions, for tests.
"use strict";

const { spawn } = require("node:child_process");
const { join } = require("node:path");

const TIME_MAX_MS = 60_000;
/// The options of mongodb-memory-server that describe its own server, of which there is one kind here.
const OPTIONS_OF_MEMORY_SERVER = ["instance", "instanceOpts", "replSet", "binary", "spawn", "dispose", "auth"];

/// Returns the path of the program: that of the variable HANDFAST_PROGRAM, or the one of this package.
function program() {
  return process.env.HANDFAST_PROGRAM || join(__dirname, "bin", "handfast");
}

/// A server in a process of its own, whose data is in a temporary directory. It stops, and removes its data, when `stop` is called or when this process ends,
/// also by a signal.
class HandfastServer {
  #child;
  #ended;
  #address;

  constructor(child, ended, startLine) {
    if (!child) throw new TypeError("a server is started by HandfastServer.create()");
    this.#child = child;
    this.#ended = ended;
    /// The first line that the server has printed, with all of its addresses.
    this.startLine = startLine;
    this.#address = startLine.split("listens on ")[1].split(/[ ,]/)[0];
  }

  /// Starts a server. `args` are further arguments of `handfast serve`, such as `["--http", "127.0.0.1:0"]`. Options of mongodb-memory-server are accepted, and
  /// change nothing: there is one kind of server, a replica set of one member with transactions and without users.
  static async create({ args = [], ...others } = {}) {
    for (const name of Object.keys(others)) {
      if (!OPTIONS_OF_MEMORY_SERVER.includes(name)) throw new TypeError(`there is no option ${name}: the option is args`);
    }
    const asks = (auth) => auth === true || (auth && auth.enable !== false && typeof auth === "object");
    if ([others.auth, others.replSet?.auth, others.instance?.auth].some(asks)) throw new TypeError("auth cannot be enabled: the server has no users");
    if (others.replSet?.count > 1) throw new TypeError("replSet.count cannot be more than 1: the server is a replica set of one member");
    // Its input ends with this process, and the server with its input. Detached, it is not stopped by a Ctrl-C before the tests have ended.
    const child = spawn(program(), ["serve", "--temporary", "--listen", "127.0.0.1:0", ...args], { stdio: ["pipe", "pipe", "pipe"], detached: true });
    let [output, errors] = ["", ""];
    const ended = new Promise((resolve) => child.once("close", resolve));
    child.stderr.on("data", (chunk) => (errors += errors.length < 10_000 ? chunk : ""));
    child.stdin.on("error", () => {}); // it has ended
    await new Promise((resolve, reject) => {
      const timer = setTimeout(() => reject(new Error(`the server has not become ready: ${output}`)), TIME_MAX_MS);
      const end = (callback, value) => (clearTimeout(timer), callback(value));
      child.stdout.on("data", (chunk) => {
        if (output.length < 10_000) output += chunk;
        if (/\nready\n/.test(output)) end(resolve);
      });
      child.once("error", (error) => end(reject, new Error(`${program()} cannot be started: ${error.message}`)));
      ended.then(() => end(reject, new Error(errors.trim() || "the server has ended")));
    }).catch((error) => {
      child.kill("SIGKILL");
      throw error;
    });
    // The process may end while the server runs.
    for (const handle of [child, child.stdin, child.stdout, child.stderr]) handle.unref();
    return new HandfastServer(child, ended, output.split("\n")[0]);
  }

  /// Returns the connection string for drivers, with the name of a database if one is given.
  getUri(database = "") {
    return `mongodb://${this.#address}/${database}?directConnection=true`;
  }

  /// Returns the URL of its HTTP API, if it was started with `args: ["--http", "127.0.0.1:0"]`.
  get httpUrl() {
    return this.startLine.match(/http:\/\/[^ ,]+/)?.[0];
  }

  /// Returns the id of its process.
  get pid() {
    return this.#child.pid;
  }

  /// Stops the server, and removes its data. Once it has stopped, nothing happens.
  async stop() {
    this.#child.ref();
    this.#child.stdin.end();
    // A child of this process may have the other end of the pipe, too.
    this.#child.kill("SIGTERM");
    const timer = setTimeout(() => this.#child.kill("SIGKILL"), TIME_MAX_MS);
    await this.#ended;
    clearTimeout(timer);
    return true;
  }

  async [Symbol.asyncDispose ?? Symbol.for("Symbol.asyncDispose")]() {
    await this.stop();
  }
}

module.exports = {
  HandfastServer,
  /// The names of mongodb-memory-server, for projects that replace its import.
  MongoMemoryReplSet: HandfastServer,
  MongoMemoryServer: HandfastServer,
};
