// The example page in a real browser.

import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';

import { type BrowserContext, chromium } from 'playwright-core';

import { BusClient } from '../src/index.js';
import { Broker } from './broker.js';
import { QUICK } from './fixture.js';
import { PageServer } from './page-server.js';

const CHROMIUM = process.env['CHROMIUM_BIN'] ?? '/usr/bin/chromium';
/** Alone on this machine and without talking to anybody else. */
const FLAGS = [
  '--disable-gpu',
  '--disable-quic',
  '--no-first-run',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
];

/** What a page would do that asks the loop something. */
const ASK_THE_LOOP = `async (ws) => {
  const { OsClient } = await import('/dist/src/index.js');
  const os = await OsClient.connect(ws);
  const replies = await Promise.all([1, 'müll'].map((payload) => os.query('Syscall.Ping', { payload })));
  const refused = await os.command('Duck.Count').catch((error) => [error.name, error.code]);
  await os.close();
  return { replies, refused };
}`;

let pages: PageServer;
let broker: Broker;
let profile: string;
let browser: BrowserContext;

before(async () => {
  pages = await PageServer.start();
  broker = await Broker.start('--allow-origin', pages.origin);
  profile = await mkdtemp(join(tmpdir(), 'millrace-chromium-'));
  browser = await chromium.launchPersistentContext(profile, {
    executablePath: CHROMIUM,
    headless: true,
    chromiumSandbox: false,
    args: FLAGS,
    timeout: 0,
  });
  browser.setDefaultTimeout(0);
});

after(async () => {
  await browser?.close();
  await broker?.remove();
  pages?.stop();
  if (profile) await rm(profile, { recursive: true, force: true });
});

test('the page publishes, hears what is published, and goes on after a kill of the server', async () => {
  const page = await browser.newPage();
  const problems: string[] = [];
  page.on('pageerror', (error) => problems.push(String(error)));
  await page.goto(`${pages.origin}/examples/browser/index.html?bus=${encodeURIComponent(broker.ws)}`);
  const state = (text: string) => page.locator('#state', { hasText: new RegExp(`^${text}$`) }).waitFor();
  await state('open');

  const say = async (text: string, receipt: string): Promise<void> => {
    await page.fill('#text', text);
    await page.click('button');
    await page.locator('#receipt', { hasText: receipt }).waitFor();
    await page.locator('#heard li', { hasText: text }).first().waitFor();
  };
  await say('hello from a page', 'offset 1, fsync');

  const bus = new BusClient(broker.ws, QUICK);
  await bus.publish('example.said', { text: 'hello from Node' });
  await page.locator('#heard li', { hasText: 'hello from Node' }).waitFor();
  await bus.close();

  await broker.kill();
  await state('waiting');
  await broker.restart();
  await state('open');
  await say('hello again', 'offset 3, fsync');

  assert.deepEqual(problems, []);
  const modules = pages.requested.filter((path) => path.endsWith('.js'));
  assert.ok(modules.includes('/dist/src/browser-transport.js'), modules.join(' '));
  assert.ok(!modules.includes('/dist/src/node-transport.js'), 'a browser needs no package of Node');
  assert.ok(!modules.includes('/dist/src/unix-transport.js'), 'nor its sockets');
});

test('a page asks the loop and is answered', async () => {
  const page = await browser.newPage();
  await page.goto(`${pages.origin}/examples/browser/index.html?bus=${encodeURIComponent(broker.ws)}`);
  const said = await page.evaluate(`(${ASK_THE_LOOP})(${JSON.stringify(broker.ws)})`);
  assert.deepEqual(said, { replies: [{ payload: 1 }, { payload: 'müll' }], refused: ['OsError', 404] });
  await page.close();
});
