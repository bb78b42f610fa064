// The examples run as a reader would run them.

import assert from 'node:assert/strict';
import { type ChildProcessByStdio, spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import type { Readable } from 'node:stream';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';

import { Collected } from './collected.js';
import { withBroker } from './fixture.js';

const fixture = withBroker();

interface Example {
  child: ChildProcessByStdio<null, Readable, null>;
  lines: Collected<string>;
}

function run(name: string, env: NodeJS.ProcessEnv = {}): Example {
  const script = fileURLToPath(new URL(`../../examples/${name}.js`, import.meta.url));
  const child = spawn(process.execPath, [script], {
    env: { ...process.env, BUS_URL: fixture.broker.ws, ...env },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const lines = new Collected<string>();
  createInterface(child.stdout).on('line', (line) => lines.push(line));
  return { child, lines };
}

async function stop({ child }: Example): Promise<void> {
  const exited = once(child, 'exit');
  child.kill('SIGTERM');
  assert.deepEqual(await exited, [0, null]);
}

test('the monitor prints what the heartbeat says, also after a kill of the server', async () => {
  const monitor = run('monitor');
  await monitor.lines.until((lines) => lines.includes('listening'));
  const heartbeat = run('heartbeat', { name: 'duck' });
  assert.deepEqual(await heartbeat.lines.count(1), ['beat 1 (fsync)']);
  const said = (lines: string[]): string[] => lines.filter((line) => /name: 'duck'/.test(line));
  await monitor.lines.until((lines) => said(lines).length >= 1);
  await fixture.broker.kill();
  await fixture.broker.restart();
  // Two different ones: the first may come twice.
  await monitor.lines.until((lines) => new Set(said(lines)).size >= 2);
  await stop(heartbeat);
  await stop(monitor);
  assert.ok(said(monitor.lines.all)[0]?.startsWith(`HB { pid: ${heartbeat.child.pid}`), monitor.lines.all.join('\n'));
});

test('the outbox example sends its orders', async () => {
  const example = run('outbox');
  assert.deepEqual(await example.lines.count(1), ['sent 2, refused 0']);
  await stop(example);
  assert.deepEqual(
    (await fixture.broker.stored('orders.placed')).map(({ payload }) => payload),
    [
      { customer: 'alice', total: 42.5 },
      { customer: 'bob', total: 7 },
    ],
  );
});
