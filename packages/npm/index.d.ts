/** The options of a server. */
export interface HandfastOptions {
  /** Further arguments of `handfast serve`, such as `["--http", "127.0.0.1:0"]`. */
  args?: string[];
  /** Options of mongodb-memory-server, which change nothing. */
  instance?: object;
  instanceOpts?: object[];
  replSet?: object;
  binary?: object;
  spawn?: object;
  dispose?: object;
  auth?: object;
}

/**
 * A server in a process of its own, whose data is in a temporary directory. It stops, and removes its data, when `stop` is called or when this process ends, also by
 * a signal.
 */
export declare class HandfastServer {
  private constructor();
  /** Starts a server. */
  static create(options?: HandfastOptions): Promise<HandfastServer>;
  /** The first line that the server has printed, with all of its addresses. */
  readonly startLine: string;
  /** The URL of its HTTP API, if it was started with `args: ["--http", "127.0.0.1:0"]`. */
  readonly httpUrl: string | undefined;
  /** The id of its process. */
  readonly pid: number;
  /** Returns the connection string for drivers, with the name of a database if one is given. */
  getUri(database?: string): string;
  /** Stops the server, and removes its data. Once it has stopped, nothing happens. */
  stop(options?: unknown): Promise<boolean>;
}

export { HandfastServer as MongoMemoryReplSet, HandfastServer as MongoMemoryServer };
