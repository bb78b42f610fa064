// The parts that need no server.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { Backoff } from '../src/backoff.js';
import { defaultUrl, Endpoint } from '../src/endpoint.js';
import { BadUrl } from '../src/index.js';
import { Leases } from '../src/leases.js';
import { uuidv7 } from '../src/uuid.js';

test('delays double from 1 to 10 seconds and start over after a success', () => {
  const backoff = new Backoff({ random: () => 0 });
  const delays = (): number[] => [1, 2, 3, 4, 5, 6].map(() => backoff.nextMs());
  assert.deepEqual(delays(), [1_000, 2_000, 4_000, 8_000, 10_000, 10_000]);
  backoff.reset();
  assert.equal(backoff.nextMs(), 1_000);
});

test('jitter takes away at most a fifth', () => {
  const backoff = new Backoff({ random: () => 0.999_999 });
  const delay = backoff.nextMs();
  assert.ok(delay > 799 && delay < 801, String(delay));
});

test('a UUID v7 begins with its time and carries version and variant', () => {
  const id = uuidv7(0x0123_4567_89ab);
  assert.match(id, /^01234567-89ab-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
  assert.notEqual(id, uuidv7(0x0123_4567_89ab));
});

for (const [given, ws, http] of [
  ['ws://127.0.0.1:7070', 'ws://127.0.0.1:7070/', 'http://127.0.0.1:7070/topics'],
  ['ws://broker', 'ws://broker:7070/', 'http://broker:7070/topics'],
  ['http://broker:80/ws', 'ws://broker/ws', 'http://broker/topics'],
  ['wss://[::1]:9/', 'wss://[::1]:9/', 'https://[::1]:9/topics'],
] as const) {
  test(`${given} is ${ws}`, () => {
    assert.equal(new Endpoint(given).ws, ws);
    assert.equal(new Endpoint(given).http('/topics'), http);
  });
}

test('the namespace goes into both addresses', () => {
  const endpoint = new Endpoint('ws://broker:1', 'blue');
  assert.equal(endpoint.ws, 'ws://broker:1/?namespace=blue');
  assert.equal(endpoint.http('/topics'), 'http://broker:1/topics?namespace=blue');
});

for (const bad of ['', 'broker', 'tcp://broker', 'ws://', 'ws://broker:7070/?namespace=x']) {
  test(`${JSON.stringify(bad)} is no usable URL`, () => {
    assert.throws(
      () => new Endpoint(bad),
      (error) => error instanceof BadUrl && error.code === 'bad_url',
    );
  });
}

test('BUS_URL names the server when nobody else does', () => {
  const before = process.env['BUS_URL'];
  delete process.env['BUS_URL'];
  assert.equal(defaultUrl(), 'ws://127.0.0.1:7070');
  process.env['BUS_URL'] = 'ws://elsewhere:1';
  assert.equal(defaultUrl(), 'ws://elsewhere:1');
  if (before === undefined) delete process.env['BUS_URL'];
  else process.env['BUS_URL'] = before;
});

test('leases forget the oldest beyond twice the window', () => {
  const leases = new Leases();
  const place = (offset: number) => ({ topic: 't', group: 'g', partition: 0, offset });
  for (const offset of [1, 2, 3, 4, 1, 5]) leases.note(place(offset), 2);
  assert.deepEqual(
    [1, 2, 3, 4, 5].filter((offset) => leases.has(place(offset))),
    [1, 3, 4, 5],
  );
});
