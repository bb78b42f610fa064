// The real server and a real browser. Whatever a page complains about fails its test.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { createInterface } from 'node:readline';

import { chromium } from 'playwright-core';
import WebSocket from 'ws';

import { serverBinary } from './binary.mjs';

const CHROMIUM = process.env['CHROMIUM_BIN'] ?? '/usr/bin/chromium';
/** Alone on this machine and without talking to anybody else. */
const FLAGS = ['--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking', '--disable-component-update', '--disable-sync'];

/** The server takes its settings from the environment too. */
const environment = () => Object.fromEntries(Object.entries(process.env).filter(([name]) => !/^(MILLRACE|BUS)_/.test(name)));

export class Server {
  static async start({ config = '', flags = [] } = {}) {
    const server = new Server();
    server.folder = await mkdtemp(join(tmpdir(), 'millrace-console-'));
    server.flags = flags;
    await server.configure(config);
    server.listen = '127.0.0.1:0';
    await server.begin();
    server.listen = new URL(server.http).host;
    return server;
  }

  /** Writes the configuration, which SIGHUP reads again. */
  async configure(config) {
    await writeFile(join(this.folder, 'millrace.toml'), config);
  }

  async begin() {
    const args = ['serve', '--config', join(this.folder, 'millrace.toml'), '--listen', this.listen, '--store', `sqlite:///${join(this.folder, 'bus.db')}`, '--socket', 'none', '--metrics-interval-ms', '200', ...(process.env['CONSOLE_DIR'] ? ['--console-dir', process.env['CONSOLE_DIR']] : []), ...this.flags];
    this.child = spawn(serverBinary(), args, { stdio: ['ignore', 'pipe', 'pipe'], env: environment() });
    let log = '';
    this.child.stderr.on('data', (data) => (log = (log + data).slice(-4000)));
    const exited = once(this.child, 'exit').then(([code]) => {
      throw new Error(`the server ended with ${code}: ${log}`);
    });
    exited.catch(() => {});
    const [line] = await Promise.race([once(createInterface(this.child.stdout), 'line'), exited]);
    this.http = JSON.parse(line).http;
  }

  /** A program with durable handlers, a schedule and a delayed event, beside the server. */
  program() {
    const path = join(dirname(serverBinary()), 'examples', 'ex9_in_the_console');
    const child = spawn(path, [`sqlite:///${join(this.folder, 'bus.db')}`], { stdio: 'ignore', env: environment() });
    // Without the program the pages would wait for it for ever.
    child.on('error', (error) => {
      throw new Error(`${path} does not start (cargo build -p millrace --example ex9_in_the_console): ${error.message}`);
    });
    this.programs = [...(this.programs ?? []), child];
    return child;
  }

  async end(signal = 'SIGTERM') {
    const gone = once(this.child, 'exit');
    this.child.kill(signal);
    await gone;
  }

  async remove() {
    for (const child of this.programs ?? []) child.kill('SIGKILL');
    await this.end('SIGKILL');
    await rm(this.folder, { recursive: true });
  }

  async send(method, path, body, token) {
    const headers = token ? { authorization: `Bearer ${token}` } : {};
    const response = await fetch(this.http + path, { method, headers, body: typeof body === 'string' ? body : body === undefined ? undefined : JSON.stringify(body) });
    const text = await response.text();
    assert.ok(response.ok, `${method} ${path}: ${response.status} ${text}`);
    return text === '' ? null : JSON.parse(text);
  }

  publish(topic, body, token) {
    return this.send('POST', `/topics/${topic}/events`, body, token);
  }

  /** A worker: `decide` gives the frame that answers an event, or nothing. */
  async worker(topic, group, decide, more = {}) {
    const socket = new WebSocket(`${this.http.replace('http', 'ws')}/`);
    await once(socket, 'open');
    const joined = once(socket, 'message');
    socket.send(JSON.stringify({ type: 'SUBSCRIBE', topic, group, from: { kind: 'earliest' }, ack_mode: 'individual', ...more }));
    socket.on('message', (data) => {
      const frame = JSON.parse(data);
      if (frame.type !== 'MESSAGE') return;
      const answer = decide(frame.envelope);
      if (answer) socket.send(JSON.stringify({ topic, group, partition: frame.partition, offset: frame.offset, ...answer }));
    });
    await joined;
    return socket;
  }
}

export class Browser {
  static async start() {
    const browser = new Browser();
    browser.inner = await chromium.launch({ executablePath: CHROMIUM, headless: true, chromiumSandbox: false, args: FLAGS, timeout: 0 });
    return browser;
  }

  /**
   * A page that notes what goes wrong in it. `may`: complaints that the test expects, such as requests that fail while
   * the server is away.
   */
  async open(address, { may = null, respond = () => {}, ...options } = {}) {
    const context = await this.inner.newContext({ viewport: { width: 1440, height: 900 }, ...options });
    // No limit, except for those who look for what a test waits for.
    context.setDefaultTimeout(Number(process.env['PATIENCE_MS'] ?? 0));
    const page = await context.newPage();
    const host = new URL(address).host;
    const problems = [];
    const note = (text) => {
      if (!may?.test(text)) problems.push(text);
    };
    page.on('console', (message) => {
      if (['error', 'warning'].includes(message.type())) note(`console: ${message.text()}`);
    });
    page.on('pageerror', (error) => note(`error: ${error.stack ?? error}`));
    page.on('request', (request) => {
      const url = new URL(request.url());
      if (!['data:', 'blob:'].includes(url.protocol) && url.host !== host) problems.push(`a request to ${url}`);
    });
    page.on('response', respond);
    await page.goto(address);
    return {
      page,
      problems,
      async end() {
        await context.close();
        assert.deepEqual(problems, []);
      },
    };
  }

  async end() {
    await this.inner?.close();
  }
}
