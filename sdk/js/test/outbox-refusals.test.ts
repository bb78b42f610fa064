// Refusals that say nothing about a row must not use up its attempts.

import assert from 'node:assert/strict';
import { after, afterEach, before, test } from 'node:test';

import {
  BusClient,
  type BusClientOptions,
  BusError,
  type BusErrorCode,
  drainOutbox,
  MemoryOutbox,
  type OpenTransport,
  Refused,
} from '../src/index.js';
import { openNodeTransport } from '../src/node-transport.js';
import { verdictOn } from '../src/verdicts.js';
import { Broker } from './broker.js';
import { Collected } from './collected.js';
import { QUICK } from './fixture.js';
import { Secrets } from './secure.js';

/** Longer than anybody would wait for a test. */
const AGES_MS = 1_000_000_000;

const secrets = new Secrets();
const clients: BusClient[] = [];
let slow: Broker;
let guarded: Broker;

before(async () => {
  slow = await Broker.start('--connection-rate', '20', '--connection-burst', '10');
  guarded = await Broker.start('--config', secrets.config);
});
afterEach(async () => {
  await Promise.all(clients.splice(0).map((client) => client.close()));
});
after(async () => {
  await Promise.all([slow.remove(), guarded.remove()]);
  secrets.remove();
});

function clientOf(broker: Broker, options: BusClientOptions = {}): BusClient {
  const client = new BusClient(broker.ws, { ...QUICK, ...options });
  clients.push(client);
  return client;
}

function filled(topic: string, count: number, now?: () => number): MemoryOutbox {
  const outbox = new MemoryOutbox(now);
  for (let n = 0; n < count; n++) outbox.add({ id: `${topic}-${n}`, topic, payload: n });
  return outbox;
}

const ids = (topic: string, count: number): string[] => Array.from({ length: count }, (_, n) => `${topic}-${n}`);
const counted = (outbox: MemoryOutbox): string[] =>
  [...outbox.rows.values()].filter(({ attempts }) => attempts !== undefined).map(({ id }) => id);
const unsent = (outbox: MemoryOutbox): string[] =>
  [...outbox.rows.values()].filter(({ sentTs }) => sentTs === undefined).map(({ id }) => id);
const storedIds = async (broker: Broker, topic: string): Promise<string[]> =>
  (await broker.stored(topic)).map(({ id }) => id);

test('a rate limit slows the drainer down and costs no row an attempt', async () => {
  const outbox = filled('limited', 25);
  // With a single attempt, the first that was counted would be the last.
  const report = await drainOutbox(outbox, clientOf(slow), { maxAttempts: 1 });
  assert.deepEqual(report, { claimed: 25, sent: 25, refused: 0 });
  assert.deepEqual(counted(outbox), []);
  assert.deepEqual((await storedIds(slow, 'limited')).sort(), ids('limited', 25).sort());
});

test('what a call has no time for is given back, in order, for the next', async () => {
  const bus = clientOf(slow);
  const outbox = filled('postponed', 100);
  const { claimed, sent, postponed } = await drainOutbox(outbox, bus, { maxAttempts: 1, pauseMsMax: 1 });
  assert.ok(sent > 0 && sent < 100, `${sent} were sent at once`);
  assert.equal(claimed, 100);
  assert.equal(postponed?.rows, 100 - sent);
  assert.equal(postponed.error.code, 'rate_limited');
  const again = await outbox.claim(100, 1);
  assert.deepEqual(
    again.map(({ id }) => id),
    unsent(outbox),
  );
  await outbox.release(again);
  const next = await drainOutbox(outbox, bus, { batch: 5, maxAttempts: 1 });
  assert.deepEqual(next, { claimed: 5, sent: 5, refused: 0 });
  assert.deepEqual(
    unsent(outbox),
    again.slice(5).map(({ id }) => id),
  );
});

test('a rate limit says how long to wait', async () => {
  const bus = clientOf(slow);
  const outcomes = await Promise.allSettled(Array.from({ length: 20 }, (_, n) => bus.publish('hasty', n)));
  const refused = outcomes.flatMap((outcome) => (outcome.status === 'rejected' ? [outcome.reason as unknown] : []));
  assert.ok(refused.length > 0);
  for (const error of refused) {
    assert.ok(error instanceof Refused && error.code === 'rate_limited');
    const { retryAfterMs } = error;
    assert.ok(retryAfterMs !== undefined && retryAfterMs > 0 && retryAfterMs <= 50, error.message);
  }
});

/** A server whose disk has too little room, until it is started again. */
async function withFullDisk(work: (broker: Broker) => Promise<void>): Promise<void> {
  const broker = await Broker.start('--metrics-interval-ms', '0');
  try {
    await broker.kill();
    await broker.restart('--disk-free-bytes-min', String(Number.MAX_SAFE_INTEGER));
    await assert.rejects(clientOf(broker).publish('filler', 1), { code: 'storage_failed' });
    await work(broker);
  } finally {
    await broker.remove();
  }
}

test('a full disk costs no row an attempt, and the next server gets them all', async () => {
  await withFullDisk(async (broker) => {
    const bus = clientOf(broker);
    const outbox = filled('full', 30);
    for (let n = 0; n < 3; n++) {
      const report = await drainOutbox(outbox, bus, { maxAttempts: 1, pauseMsMax: 20, ...QUICK });
      assert.deepEqual([report.claimed, report.sent, report.refused, report.postponed?.rows], [30, 0, 0, 30]);
      assert.equal(report.postponed?.error.code, 'storage_failed');
    }
    const draining = drainOutbox(outbox, bus, { maxAttempts: 1, pauseMsMax: AGES_MS, ...QUICK });
    await broker.kill();
    await broker.restart();
    assert.deepEqual(await draining, { claimed: 30, sent: 30, refused: 0 });
    assert.deepEqual(await storedIds(broker, 'full'), ids('full', 30));
  });
});

test('closing the client ends a pause', async () => {
  await withFullDisk(async (broker) => {
    const refusals = new Collected<string>();
    const openTransport: OpenTransport = (url, token, events) => {
      const received = (text: string): void => {
        events.received(text);
        if (text.includes('storage_failed')) refusals.push(text);
      };
      return openNodeTransport(url, token, { ...events, received });
    };
    const bus = clientOf(broker, { openTransport });
    const outbox = filled('paused', 3);
    const backoff = { startMs: AGES_MS, maxMs: AGES_MS };
    const draining = drainOutbox(outbox, bus, { pauseMsMax: AGES_MS, backoff });
    draining.catch(() => {});
    await refusals.count(3);
    await new Promise(setImmediate);
    await bus.close();
    await assert.rejects(draining, (error: BusError) => error.code === 'closed');
    assert.deepEqual(counted(outbox), []);
    assert.equal((await outbox.claim(3, 1)).length, 3, 'the rows were given back');
  });
});

test('without a token that is good nothing is counted, and the caller is told', async () => {
  const outbox = filled('stranger', 3);
  await assert.rejects(drainOutbox(outbox, clientOf(guarded)), (error: BusError) => error.code === 'unauthorized');
  assert.deepEqual(counted(outbox), []);
  const sent = await drainOutbox(outbox, clientOf(guarded, { token: 'worker-secret' }), { maxAttempts: 1 });
  assert.deepEqual(sent, { claimed: 3, sent: 3, refused: 0 });
});

test('a topic that is closed to the client holds nobody up, and its rows wait until it is open', async () => {
  const root = clientOf(guarded, { token: 'root-secret' });
  await root.registerTopic('closed', { publishACL: ['root'] });
  let time = 0;
  const outbox = filled('closed', 2, () => time);
  outbox.add({ id: 'open', topic: 'open', payload: 1 });
  const bus = clientOf(guarded, { token: 'worker-secret' });
  const report = await drainOutbox(outbox, bus, { maxAttempts: 1 });
  assert.deepEqual([report.sent, report.refused, report.postponed?.rows], [1, 0, 2]);
  assert.equal(report.postponed?.error.code, 'forbidden');
  assert.equal((await drainOutbox(outbox, bus, { maxAttempts: 1 })).claimed, 0, 'others get their turn first');
  await root.registerTopic('closed', { publishACL: ['root', 'worker'] });
  time += 60_000;
  assert.deepEqual(await drainOutbox(outbox, bus, { maxAttempts: 1 }), { claimed: 2, sent: 2, refused: 0 });
});

test('drainers that share a narrow client all get through', async () => {
  const bus = clientOf(guarded, { token: 'worker-secret', publishesInflightMax: 1 });
  const outboxes = ['one', 'two', 'three'].map((topic) => filled(topic, 20));
  const reports = await Promise.all(outboxes.map((outbox) => drainOutbox(outbox, bus, { maxAttempts: 1 })));
  assert.deepEqual(
    reports.map(({ sent }) => sent),
    [20, 20, 20],
  );
});

test('rows of a database with nulls for nothing are sent', async () => {
  const outbox = new MemoryOutbox();
  outbox.add({ id: 'null', topic: 'nulls', key: null, headers: null, payload: 1 });
  const bus = clientOf(guarded, { token: 'worker-secret' });
  assert.equal((await drainOutbox(outbox, bus)).sent, 1);
});

test('a code this package does not know is not counted', () => {
  assert.equal(verdictOn(new BusError('brand_new' as BusErrorCode, 'what is this?')), 'later');
  assert.equal(verdictOn(new TypeError('a mistake here')), 'stop');
});
