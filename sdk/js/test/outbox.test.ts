import assert from 'node:assert/strict';
import { test } from 'node:test';

import { BusClient, type BusError, drainOutbox, MemoryOutbox, type OutboxRow, type OutboxStore } from '../src/index.js';
import { QUICK, withBroker } from './fixture.js';

const fixture = withBroker();

function filled(topic: string, count: number, now?: () => number): MemoryOutbox {
  const outbox = new MemoryOutbox(now);
  for (let n = 0; n < count; n++)
    outbox.add({ id: `${topic}-${n}`, topic, key: 'k', headers: { n: String(n) }, payload: { n } });
  return outbox;
}

const unsent = (outbox: MemoryOutbox): string[] =>
  [...outbox.rows.values()].filter((row) => row.sentTs === undefined).map(({ id }) => id);
const storedIds = async (topic: string): Promise<string[]> => (await fixture.broker.stored(topic)).map(({ id }) => id);

test('rows are published in order under their own ids and marked as sent, once', async () => {
  const bus = fixture.client();
  const outbox = filled('drained', 250);
  const reports = [];
  for (let n = 0; n < 4; n++) reports.push(await drainOutbox(outbox, bus));
  assert.deepEqual(
    reports.map(({ sent }) => sent),
    [100, 100, 50, 0],
  );
  assert.deepEqual(
    await storedIds('drained'),
    Array.from({ length: 250 }, (_, n) => `drained-${n}`),
  );
  assert.deepEqual(unsent(outbox), []);
});

test('a batch larger than the send queue waits for room', async () => {
  const bus = fixture.client({ publishesInflightMax: 3 });
  assert.equal((await drainOutbox(filled('narrow', 50), bus)).sent, 50);
});

test('rows of many sizes keep their order in a send queue of few characters', async () => {
  const bus = fixture.client({ publishCharsInflightMax: 2_000 });
  const outbox = new MemoryOutbox();
  for (let n = 0; n < 30; n++) {
    outbox.add({ id: `sizes-${n}`, topic: 'sizes', payload: 'x'.repeat(n % 3 ? 10 : 1_500) });
  }
  assert.deepEqual(await drainOutbox(outbox, bus), { claimed: 30, sent: 30, refused: 0 });
  assert.deepEqual(
    await storedIds('sizes'),
    Array.from({ length: 30 }, (_, n) => `sizes-${n}`),
  );
});

/** Dies at one moment of one row, as a process would. */
class Crashing implements OutboxStore {
  #left: number;

  constructor(
    readonly inner: MemoryOutbox,
    readonly when: 'before' | 'after',
    row: number,
  ) {
    this.#left = row;
  }

  claim(limit: number, maxAttempts: number): Promise<OutboxRow[]> {
    return this.inner.claim(limit, maxAttempts);
  }

  async markSent(row: OutboxRow): Promise<void> {
    const crash = this.#left-- <= 0;
    if (crash && this.when === 'before') throw new Error('crashed before the mark');
    await this.inner.markSent(row);
    if (crash) throw new Error('crashed after the mark');
  }

  markError(row: OutboxRow, error: BusError): Promise<void> {
    return this.inner.markError(row, error);
  }
}

for (const when of ['before', 'after'] as const) {
  test(`a crash ${when} any mark resends, and the topic has each row once`, async () => {
    const bus = fixture.client();
    const topic = `crash-${when}`;
    for (let row = 0; row < 5; row++) {
      let time = 0;
      const outbox = filled(`${topic}-${row}`, 5, () => time);
      await assert.rejects(drainOutbox(new Crashing(outbox, when, row), bus), /crashed/);
      assert.equal((await drainOutbox(outbox, bus)).claimed, 0, 'the dead drainer still holds its claims');
      time += 60_000;
      await drainOutbox(outbox, bus);
      assert.deepEqual(unsent(outbox), []);
      assert.deepEqual(
        await storedIds(`${topic}-${row}`),
        [0, 1, 2, 3, 4].map((n) => `${topic}-${row}-${n}`),
      );
    }
  });
}

test('no row is marked before it is confirmed', async () => {
  const bus = fixture.client();
  await bus.connected();
  await fixture.broker.kill();
  const outbox = filled('unconfirmed', 20);
  const draining = drainOutbox(outbox, bus);
  assert.equal(unsent(outbox).length, 20);
  await fixture.broker.restart();
  assert.equal((await draining).sent, 20);
  assert.deepEqual(await storedIds('unconfirmed'), [...outbox.rows.keys()]);
});

test('a client that is closed meanwhile leaves the rows to the next drainer, without counting', async () => {
  const bus = new BusClient('ws://127.0.0.1:9', QUICK);
  const outbox = filled('interrupted', 3);
  const draining = drainOutbox(outbox, bus);
  await bus.close();
  await assert.rejects(draining, (error: BusError) => error.code === 'closed');
  assert.deepEqual(
    [...outbox.rows.values()].map((row) => [row.sentTs, row.attempts]),
    [
      [undefined, undefined],
      [undefined, undefined],
      [undefined, undefined],
    ],
  );
});

test('a row the server refuses keeps its error, holds nobody up, and is given up after maxAttempts', async () => {
  const bus = fixture.client();
  const outbox = new MemoryOutbox();
  outbox.add({ id: 'bad', topic: 'no spaces', payload: 1 });
  outbox.add({ id: 'good', topic: 'refusing', payload: 1 });
  assert.deepEqual(await drainOutbox(outbox, bus, { maxAttempts: 2 }), { claimed: 2, sent: 1, refused: 1 });
  assert.deepEqual(await drainOutbox(outbox, bus, { maxAttempts: 2 }), { claimed: 1, sent: 0, refused: 1 });
  assert.deepEqual(await drainOutbox(outbox, bus, { maxAttempts: 2 }), { claimed: 0, sent: 0, refused: 0 });
  assert.match(outbox.rows.get('bad')?.lastError ?? '', /only A-Z/);
});
