import assert from 'node:assert/strict';
import { test } from 'node:test';

import { BusClient, type BusError, uuidv7 } from '../src/index.js';
import { Collected } from './collected.js';
import { QUICK, withBroker } from './fixture.js';

const fixture = withBroker();
const refusedWith = (code: string) => (error: BusError) => error.code === code;

test('a publish resolves with where the event is and how durable', async () => {
  const bus = fixture.client();
  const first = await bus.publish('orders', { total: 42.5 }, 'alice', { ct: 'json' });
  assert.deepEqual({ ...first, id: '' }, { topic: 'orders', partition: 0, offset: 1, id: '', durability: 'fsync' });
  assert.match(first.id, /^[0-9a-f]{8}-[0-9a-f]{4}-7/);
  const [stored] = await fixture.broker.stored('orders');
  assert.deepEqual(
    { ...stored, ts: 0 },
    {
      id: first.id,
      ts: 0,
      topic: 'orders',
      partition: 0,
      offset: 1,
      key: 'alice',
      headers: { ct: 'json' },
      payload: { total: 42.5 },
    },
  );
});

test('null is a payload', async () => {
  await fixture.client().publish('nothing', null);
  assert.equal((await fixture.broker.stored('nothing'))[0]?.payload, null);
});

test('a key that is null is no key, and what stands behind it is kept', async () => {
  const bus = fixture.client();
  await bus.publish('keyless', 1, null, { h: 'v' });
  await bus.publish('keyless', 2, undefined, { h: 'v' });
  await bus.publish('keyless', 3, 'k', null);
  await bus.publish('keyless', 4, { key: 'k' });
  // Calls that types forbid and plain JavaScript can make.
  await (bus.publish as (...given: unknown[]) => Promise<unknown>).call(bus, 'keyless', 5, { key: 'k' }, { h: 'v' });
  assert.deepEqual(
    (await fixture.broker.stored('keyless')).map(({ payload, key, headers }) => [payload, key, headers]),
    [
      [1, undefined, { h: 'v' }],
      [2, undefined, { h: 'v' }],
      [3, 'k', undefined],
      [4, 'k', undefined],
      [5, 'k', { h: 'v' }],
    ],
  );
});

test('the options form takes an id, and the same id is stored once', async () => {
  const bus = fixture.client();
  const id = uuidv7();
  const first = await bus.publish('once', 1, { id, priority: 3 });
  const second = await bus.publish('once', 1, { id });
  assert.deepEqual(second, first);
  assert.equal((await fixture.broker.stored('once')).length, 1);
});

test('many publishes in flight keep their order', async () => {
  const bus = fixture.client();
  const receipts = await Promise.all(Array.from({ length: 500 }, (_, n) => bus.publish('row', n)));
  assert.deepEqual(
    receipts.map(({ offset }) => offset),
    Array.from({ length: 500 }, (_, n) => n + 1),
  );
  assert.deepEqual(
    (await fixture.broker.stored('row')).map(({ payload }) => payload),
    Array.from({ length: 500 }, (_, n) => n),
  );
});

test('a batch is stored whole and answered with its offsets and ids', async () => {
  const bus = fixture.client();
  const batch = await bus.publishBatch('batches', [{ payload: 'a' }, { payload: 'b', id: 'my-id', key: 'k' }]);
  assert.deepEqual(batch.offsets, [
    [0, 1],
    [0, 2],
  ]);
  assert.equal(batch.ids[1], 'my-id');
  assert.equal(batch.durability, 'fsync');
  assert.deepEqual(
    (await fixture.broker.stored('batches')).map(({ id }) => id),
    batch.ids,
  );
});

test('a delayed event is answered with when it is due, and comes then', async () => {
  const bus = fixture.client();
  const seen = new Collected<unknown>();
  await bus.subscribe({ topic: 'later', group: 'g' }, (m) => seen.push(m.envelope.payload)).ready;
  const receipt = await bus.publish('later', 'tick', { delay_ms: 50 });
  assert.ok('due' in receipt && receipt.due > 0 && !('offset' in receipt), JSON.stringify(receipt));
  assert.deepEqual(await seen.count(1), ['tick']);
});

test('a refusal carries the code and the frame of the server', async () => {
  const bus = fixture.client();
  await assert.rejects(bus.publish('no spaces', 1), refusedWith('bad_topic'));
  await assert.rejects(bus.publishBatch('fine', [{ payload: 1, id: '' }]), refusedWith('bad_frame'));
  await bus.publish('fine', 'and the client goes on');
});

test('what has no JSON form is refused here', async () => {
  const bus = fixture.client();
  const circle: Record<string, unknown> = {};
  circle['self'] = circle;
  for (const payload of [undefined, () => {}, 1n, circle]) {
    await assert.rejects(bus.publish('t', payload), refusedWith('bad_payload'));
  }
  await assert.rejects(bus.publishBatch('t', [{ payload: undefined }]), refusedWith('bad_payload'));
});

test('an event that is too large for this client never leaves', async () => {
  const bus = fixture.client({ frameBytesMax: 1_000 });
  await assert.rejects(bus.publish('t', 'é'.repeat(500)), refusedWith('too_large'));
  await bus.publish('t', 'e'.repeat(500));
});

test('an event that is too large for the server fails alone, and the others arrive', async () => {
  const bus = fixture.client({ frameBytesMax: Infinity });
  const before = bus.publish('large', 'before');
  const large = bus.publish('large', 'x'.repeat(2 << 20));
  const behind = bus.publish('large', 'behind');
  await assert.rejects(large, refusedWith('too_large'));
  await Promise.all([before, behind]);
  assert.deepEqual((await fixture.broker.stored('large')).map(({ payload }) => payload).sort(), ['before', 'behind']);
});

test('a full send queue refuses with queue_full, and has room again after a confirmation', async () => {
  const bus = fixture.client({ publishesInflightMax: 2 });
  const kept = [bus.publish('bounded', 1), bus.publish('bounded', 2)];
  await assert.rejects(bus.publish('bounded', 3), refusedWith('queue_full'));
  await bus.waitForRoom();
  await bus.publish('bounded', 4);
  await Promise.all(kept);
});

test('the send queue is bounded in size too, but one event always fits', async () => {
  const bus = fixture.client({ publishCharsInflightMax: 1_000 });
  const kept = bus.publish('bounded-size', 'x'.repeat(5_000));
  await assert.rejects(bus.publish('bounded-size', 'y'), refusedWith('queue_full'));
  await kept;
  await bus.publish('bounded-size', 'y');
});

test('room is room for the next publish, whatever its size', async () => {
  const bus = fixture.client({ publishCharsInflightMax: 1_000 });
  const kept = bus.publish('roomy', 'x'.repeat(600));
  const small = bus.publish('roomy', 'small');
  await assert.rejects(bus.publish('roomy', 'y'.repeat(600)), refusedWith('queue_full'));
  await bus.waitForRoom();
  await bus.publish('roomy', 'y'.repeat(600));
  await Promise.all([kept, small]);
});

test('many publishes wait for room at once while it fits the largest frame', async () => {
  const bus = fixture.client({ publishCharsInflightMax: 3_000, frameBytesMax: 1_000 });
  const sent = [];
  for (let n = 0; n < 50; n++) {
    await bus.waitForRoom();
    sent.push(bus.publish('flowing', n % 3 === 0 ? 'x'.repeat(850) : n));
  }
  assert.deepEqual(
    (await Promise.all(sent)).map(({ offset }) => offset),
    Array.from({ length: 50 }, (_, n) => n + 1),
  );
});

test('flush resolves when everything is confirmed', async () => {
  const bus = fixture.client();
  for (let n = 0; n < 100; n++) void bus.publish('flushed', n);
  await bus.flush();
  assert.equal((await fixture.broker.stored('flushed')).length, 100);
});

test('a closed client refuses with closed, and close may be called again', async () => {
  const bus = fixture.client();
  await bus.publish('t', 1);
  await Promise.all([bus.close(), bus.close()]);
  await bus.close();
  assert.equal(bus.state, 'closed');
  for (const promise of [bus.publish('t', 1), bus.ping(), bus.connected(), bus.waitForRoom()]) {
    await assert.rejects(promise, refusedWith('closed'));
  }
  assert.throws(() => bus.subscribe({ topic: 't', group: 'g' }, () => {}), refusedWith('closed'));
});

test('a publish nobody awaits does not end the process when it fails', async () => {
  const bus = new BusClient('ws://127.0.0.1:9', QUICK);
  void bus.publish('t', 1);
  void bus.publish('t', undefined);
  void bus.ping();
  await bus.close();
});

test('a client in another namespace sees another bus', async () => {
  const [here, there] = [fixture.client(), fixture.client({ namespace: 'blue' })];
  await here.publish('shared-name', 1);
  assert.equal((await there.publish('shared-name', 1)).offset, 1);
});

test('ping resolves when the server answers', async () => {
  const bus = fixture.client();
  await bus.connected();
  await bus.ping();
});

test('a topic can be registered with its settings, and a bad one is refused by code', async () => {
  const bus = fixture.client();
  const made = await bus.registerTopic('wide', { partitions: 4, maxAttempts: 2 });
  assert.equal(made.partitions, 4);
  assert.equal(made.maxAttempts, 2);
  await assert.rejects(bus.registerTopic('wide', { partitions: 1 }), (error: BusError) => error.code.length > 0);
  await assert.rejects(bus.registerTopic('no spaces'), refusedWith('bad_topic'));
});
