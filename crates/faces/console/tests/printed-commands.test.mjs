// The commands that an empty overview prints do what they say, typed as they are printed.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm, symlink } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { after, before, test } from 'node:test';

import { serverBinary } from './binary.mjs';
import { Browser, Server } from './support.mjs';

const CONFIG = "[[auth.tokens]]\ntoken = 'alice-secret'\nagent = 'alice'\nscopes = ['publish', 'subscribe', 'metrics']\n";

let browser;
let folder;
before(async () => {
  browser = await Browser.start();
  // A folder of the path in which the binary has its name.
  folder = await mkdtemp(join(tmpdir(), 'millrace-printed-'));
  await symlink(serverBinary(), join(folder, 'millrace'));
});
after(async () => {
  await browser?.end();
  await rm(folder, { recursive: true });
});

/** Types a command into a shell; ends it after its first line. */
async function firstLine(command, token) {
  const others = Object.entries(process.env).filter(([name]) => !/^(MILLRACE|BUS)_/.test(name));
  const env = { ...Object.fromEntries(others), PATH: `${folder}:${process.env['PATH']}`, ...(token ? { MILLRACE_TOKEN: token } : {}) };
  const child = spawn('sh', ['-c', `exec ${command}`], { env, stdio: ['ignore', 'pipe', 'pipe'] });
  let said = '';
  child.stderr.on('data', (data) => (said += data));
  const gone = once(child, 'close');
  // The answer of the server has no line end.
  const [line] = await Promise.race([once(createInterface(child.stdout), 'line'), gone.then(() => [''])]);
  child.kill('SIGTERM');
  await gone;
  assert.notEqual(line, '', `${command}: ${said}`);
  return line;
}

async function commands(page) {
  await page.getByText('Nothing has been published yet').waitFor();
  return page.locator('.teach .snippet pre').allTextContents();
}

async function typed(printed, token) {
  assert.equal(printed.length, 3);
  const [curl, publish, subscribe] = printed;
  assert.equal(JSON.parse(await firstLine(curl, token)).offset, 1);
  assert.match(await firstLine(publish, token), /^published to hello, partition 0, offset 2,/);
  assert.equal(await firstLine(subscribe, token), '{"hello":"world"}');
}

test('on a server that is open', async () => {
  const server = await Server.start();
  const { page, end } = await browser.open(`${server.http}/`);
  await typed(await commands(page));
  await page.getByText('Nothing has been published yet').waitFor({ state: 'hidden' });
  await end();
  await server.remove();
});

test('on a server that wants a token, which the page does not print', async () => {
  const server = await Server.start({ config: CONFIG });
  const { page, end } = await browser.open(`${server.http}/`, { may: /401/ });
  await page.getByLabel('Token', { exact: true }).fill('alice-secret');
  await page.keyboard.press('Enter');
  const printed = await commands(page);
  assert.ok(printed.every((command) => !command.includes('alice-secret')), printed.join('\n'));
  await page.getByText('MILLRACE_TOKEN').first().waitFor();
  await typed(printed, 'alice-secret');
  await end();
  await server.remove();
});
