// The real server, started and stopped by a test.

import { type ChildProcess, type ChildProcessByStdio, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import type { Readable } from 'node:stream';

/** Below the ports that outgoing connections get, so that nobody takes it while the server is down. */
const PORTS = { first: 10_000, count: 20_000 };

export interface Ready {
  http: string;
  ws: string;
  socket: string;
}

interface StoredEvent {
  id: string;
  offset: number;
  key?: string;
  headers?: Record<string, string>;
  payload: unknown;
}

export class Broker {
  readonly #folder: string;
  readonly #args: string[];
  /** No file of the next life may have more blocks of 512 bytes: its disk is full then. */
  fileBlocksMax: number | undefined;
  #port = 0;
  #process: ChildProcess | undefined;
  #ready: Ready | undefined;

  private constructor(folder: string, args: string[]) {
    this.#folder = folder;
    this.#args = args;
  }

  /** On a port that it keeps when it is started again. */
  static async start(...args: string[]): Promise<Broker> {
    const broker = new Broker(await mkdtemp(join(tmpdir(), 'millrace-sdk-')), args);
    for (;;) {
      broker.#port = PORTS.first + Math.floor(Math.random() * PORTS.count);
      try {
        await broker.restart();
        return broker;
      } catch (error) {
        if (!/in use/i.test(String(error))) throw error;
      }
    }
  }

  get ws(): string {
    return this.#address.ws;
  }

  /** The path of the CQRS loop's socket. */
  get socket(): string {
    return this.#address.socket;
  }

  get http(): string {
    return this.#address.http;
  }

  /** `more` flags are for this life only. */
  async restart(...more: string[]): Promise<void> {
    const store = `sqlite:///${join(this.#folder, 'bus.db')}`;
    const socket = join(this.#folder, 'os.sock');
    const args = ['serve', '--listen', `127.0.0.1:${this.#port}`, '--store', store, '--socket', socket];
    const child = this.#spawn([...args, ...this.#args, ...more]);
    let log = '';
    child.stderr.on('data', (data: Buffer) => (log = (log + data.toString()).slice(-4_000)));
    const exited = once(child, 'exit').then(([code]) => {
      throw new Error(`the server ended with ${String(code)} before it was ready: ${log}`);
    });
    const ready = once(createInterface(child.stdout), 'line').then(([line]) => JSON.parse(String(line)) as Ready);
    this.#process = child;
    this.#ready = await Promise.race([ready, exited]);
    exited.catch(() => {});
  }

  /** Resolves when the server has ended by itself. */
  async ended(): Promise<void> {
    const child = this.#process;
    if (child && child.exitCode === null && child.signalCode === null) await once(child, 'exit');
  }

  /** SIGKILL, and waits for the end. */
  async kill(): Promise<void> {
    await this.#signal('SIGKILL');
  }

  /** SIGTERM, and waits for the end. */
  async stop(): Promise<void> {
    await this.#signal('SIGTERM');
  }

  /** Ends it for good. */
  async remove(): Promise<void> {
    await this.kill();
    await rm(this.#folder, { recursive: true });
  }

  /** What is in a topic's first partition. */
  async stored(topic: string): Promise<StoredEvent[]> {
    const all: StoredEvent[] = [];
    for (;;) {
      const from = (all.at(-1)?.offset ?? 0) + 1;
      const page = await this.get<{ events: StoredEvent[] }>(`/topics/${topic}/events?from=${from}&limit=10000`);
      if (page.events.length === 0) return all;
      all.push(...page.events);
    }
  }

  async get<T>(path: string): Promise<T> {
    const response = await fetch(this.http + path);
    if (!response.ok) throw new Error(`GET ${path}: ${response.status} ${await response.text()}`);
    return (await response.json()) as T;
  }

  get #address(): Ready {
    if (!this.#ready) throw new Error('the server was not started');
    return this.#ready;
  }

  #spawn(args: string[]): ChildProcessByStdio<null, Readable, Readable> {
    const limit = this.fileBlocksMax === undefined ? '' : `trap '' XFSZ; ulimit -f ${this.fileBlocksMax};`;
    const shell = ['-c', `${limit} exec "$0" "$@"`, serverBinary(), ...args];
    return spawn('sh', shell, { stdio: ['ignore', 'pipe', 'pipe'], env: plainEnvironment() });
  }

  async #signal(signal: NodeJS.Signals): Promise<void> {
    const child = this.#process;
    this.#process = undefined;
    if (!child || child.exitCode !== null || child.signalCode !== null) return;
    const exited = once(child, 'exit');
    child.kill(signal);
    await exited;
  }
}

export function serverBinary(): string {
  const path = process.env['MILLRACE_BIN'];
  if (!path) throw new Error('set MILLRACE_BIN to the path of the server: these tests run against the real one');
  return path;
}

/** The server takes its settings from the environment too, and refuses names it does not know. */
function plainEnvironment(): NodeJS.ProcessEnv {
  return Object.fromEntries(Object.entries(process.env).filter(([name]) => !/^(MILLRACE|BUS)_/.test(name)));
}
