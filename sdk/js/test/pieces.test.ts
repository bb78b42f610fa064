// The parts that need no server.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';

import { Backoff } from '../src/backoff.js';
import { defaultUrl, Endpoint } from '../src/endpoint.js';
import { assignPartition, BadUrl, Metrics } from '../src/index.js';
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

test('a key has the partition that the broker gives it', () => {
  const file = new URL('../../../../crates/words/model/tests/vectors/partition.json', import.meta.url);
  const { vectors } = JSON.parse(readFileSync(file, 'utf8')) as {
    vectors: { key?: string; utf16?: number[]; partitions: number; partition: number }[];
  };
  assert.ok(vectors.length > 40);
  for (const { key, utf16 = [], partitions, partition } of vectors) {
    const text = key ?? String.fromCharCode(...utf16);
    assert.equal(assignPartition(text, partitions), partition, `${JSON.stringify(text)} of ${partitions}`);
  }
  const keyless = assignPartition(undefined, 3);
  assert.ok(Number.isInteger(keyless) && keyless >= 0 && keyless < 3);
});

test('metrics count as those of the source document do', () => {
  const metrics = new Metrics();
  metrics.inc('published', 'orders');
  metrics.inc('delivered', 'orders');
  metrics.inc('acks');
  const snapshot = metrics.snapshot();
  metrics.inc('published', 'orders');
  assert.deepEqual(snapshot, {
    published: 1,
    delivered: 1,
    acks: 1,
    redeliveries: 0,
    inflight: 0,
    byTopic: { orders: { pub: 1, del: 1 } },
  });
});

for (const [given, ws, http] of [
  ['ws://127.0.0.1:7070', 'ws://127.0.0.1:7070/', 'http://127.0.0.1:7070/topics'],
  ['ws://broker', 'ws://broker:7070/', 'http://broker:7070/topics'],
  ['http://broker:80/ws', 'ws://broker/ws', 'http://broker/topics'],
  ['wss://broker', 'wss://broker/', 'https://broker/topics'],
  ['https://broker/ws', 'wss://broker/ws', 'https://broker/topics'],
  ['wss://broker:7070', 'wss://broker:7070/', 'https://broker:7070/topics'],
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
