import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { test } from 'node:test';

import type { BusClient, BusError, MessageFrame, SubscribeRequest } from '../src/index.js';
import { Collected } from './collected.js';
import { withBroker } from './fixture.js';

const fixture = withBroker();

test('the priority of an event is delivered, and on request the digest of its payload', async () => {
  const bus = fixture.client({ payloadSha256: true });
  const seen = new Collected<MessageFrame>();
  await bus.subscribe({ topic: 'urgent', group: 'g' }, (m) => seen.push(m)).ready;
  await bus.publish('urgent', { a: 'é' }, { priority: 7 });
  await bus.publish('urgent', 1);
  const [urgent, plain] = (await seen.count(2)).map(({ envelope }) => envelope);
  assert.equal(urgent?.priority, 7);
  assert.equal(urgent.payload_sha256, createHash('sha256').update('{"a":"é"}').digest('hex'));
  assert.equal(plain?.priority, undefined);
});
const payloads = (messages: MessageFrame[]): unknown[] => messages.map(({ envelope }) => envelope.payload);

/** Subscribes and collects without acknowledging. */
async function collect(bus: BusClient, req: SubscribeRequest): Promise<Collected<MessageFrame>> {
  const seen = new Collected<MessageFrame>();
  await bus.subscribe(req, (message) => seen.push(message)).ready;
  return seen;
}

test('several subscriptions of one client each get their own', async () => {
  const bus = fixture.client();
  const a = await collect(bus, { topic: 'several-a', group: 'g' });
  const b = await collect(bus, { topic: 'several-b', group: 'g' });
  const copy = await collect(bus, { topic: 'several-b', group: 'other' });
  await bus.publish('several-a', 'a');
  await bus.publish('several-b', 'b');
  assert.deepEqual(payloads(await a.count(1)), ['a']);
  assert.deepEqual(payloads(await b.count(1)), ['b']);
  assert.deepEqual(payloads(await copy.count(1)), ['b']);
});

test('events that come several to a frame are delivered and acknowledged one by one', async () => {
  const bus = fixture.client();
  await bus.publishBatch('batched', [{ payload: 1 }, { payload: 2 }, { payload: 3 }]);
  const request = { topic: 'batched', group: 'g', from: { kind: 'earliest' }, batch_max: 2 } as const;
  const seen = await collect(bus, request);
  const [first, second, third] = await seen.count(3);
  assert.deepEqual([first?.type, first?.offset, second?.offset, third?.offset], ['MESSAGE', 1, 2, 3]);
  assert.deepEqual(payloads(await seen.count(3)), [1, 2, 3]);
  await bus.ackConfirmed(second as MessageFrame);
  bus.nack(third as MessageFrame);
  const again = (await seen.count(4))[3];
  assert.deepEqual([again?.offset, again?.envelope.attempts], [3, 2]);
});

test('ready says where the group stands', async () => {
  const bus = fixture.client();
  await bus.publishBatch('stands', [{ payload: 1 }, { payload: 2 }]);
  const tail = bus.subscribe({ topic: 'stands', group: 'tail' }, () => {});
  const start = bus.subscribe({ topic: 'stands', group: 'start', from: { kind: 'earliest' } }, () => {});
  assert.deepEqual(await tail.ready, [{ partition: 0, next: 3 }]);
  assert.deepEqual(await start.ready, [{ partition: 0, next: 1 }]);
});

test('an ack in the form of the source document moves the commit', async () => {
  const bus = fixture.client();
  const seen = await collect(bus, { topic: 'acked', group: 'g' });
  await bus.publishBatch('acked', [{ payload: 1 }, { payload: 2 }, { payload: 3 }]);
  const [first, second] = await seen.count(3);
  assert.ok(first && second);
  const { topic, partition, group, offset } = second;
  bus.ack({ type: 'ACK', topic, partition, group, offset });
  await bus.ackConfirmed((await seen.count(3))[2] as MessageFrame);
  assert.equal(await committed('acked', 'g'), 3);
});

test('an individual ack completes one event only', async () => {
  const bus = fixture.client();
  const seen = await collect(bus, { topic: 'one', group: 'g', ack_mode: 'individual' });
  await bus.publishBatch('one', [{ payload: 1 }, { payload: 2 }]);
  await bus.ackConfirmed((await seen.count(2))[1] as MessageFrame);
  assert.equal(await committed('one', 'g'), 0);
});

test('with sticky one event of a key is in flight, and its member gets the next', async () => {
  const [one, other] = [fixture.client(), fixture.client()];
  const req: SubscribeRequest = { topic: 'sticky', group: 'g', ack_mode: 'individual', sticky: true };
  const seen = [await collect(one, req), await collect(other, req)] as const;
  const events = ['a', 'a', 'b', 'a'].map((key, index) => ({ key, payload: index }));
  await one.publishBatch('sticky', events);
  // Keys are given to the members in turn; which of them is first does not matter.
  const firsts = [(await seen[0].count(1))[0], (await seen[1].count(1))[0]] as [MessageFrame, MessageFrame];
  assert.deepEqual(payloads(firsts).sort(), [0, 2]);
  const holder = firsts[0].envelope.payload === 0 ? 0 : 1;
  const [client, mine, others] = [holder === 0 ? one : other, seen[holder], seen[1 - holder] ?? seen[0]];
  assert.deepEqual(payloads(mine.all), [0]);
  await client.ackConfirmed(firsts[holder]);
  await client.ackConfirmed((await mine.count(2))[1] as MessageFrame);
  assert.deepEqual(payloads(await mine.count(3)), [0, 1, 3]);
  assert.deepEqual(payloads(others.all), [2]);
});

test('a nacked event comes back with its count', async () => {
  const bus = fixture.client();
  const seen = await collect(bus, { topic: 'again', group: 'g' });
  await bus.publish('again', 'x');
  bus.nack((await seen.count(1))[0] as MessageFrame, { reason: 'not yet', delay_ms: 1 });
  const second = (await seen.count(2))[1];
  assert.equal(second?.envelope.attempts, 2);
  await bus.nackConfirmed(second);
  assert.equal((await seen.count(3))[2]?.envelope.attempts, 3);
  const { topic, partition, group, offset } = second;
  bus.ack({ type: 'NACK', topic, partition, group, offset, reason: 'in the form of the source document' });
  assert.equal((await seen.count(4))[3]?.envelope.attempts, 4);
});

test('the window bounds what is out, and can be changed', async () => {
  const bus = fixture.client();
  const seen = new Collected<MessageFrame>();
  const subscription = bus.subscribe({ topic: 'window', group: 'g', max_inflight: 2 }, (m) => seen.push(m));
  subscription.resize(3);
  await subscription.ready;
  await bus.publishBatch(
    'window',
    Array.from({ length: 9 }, (_, n) => ({ payload: n })),
  );
  await seen.count(3);
  await bus.ping();
  assert.equal(seen.all.length, 3);
  subscription.resize(5);
  await seen.count(5);
  await bus.ping();
  assert.equal(seen.all.length, 5);
});

test('with credits only as many come as were asked for', async () => {
  const bus = fixture.client();
  bus.flow(2);
  const seen = await collect(bus, { topic: 'credits', group: 'g' });
  await bus.publishBatch(
    'credits',
    Array.from({ length: 5 }, (_, n) => ({ payload: n })),
  );
  await seen.count(2);
  await bus.ping();
  assert.equal(seen.all.length, 2);
  bus.flow(1);
  await seen.count(3);
});

test('a filter lets through what it names', async () => {
  const bus = fixture.client();
  const seen = await collect(bus, { topic: 'filtered', group: 'g', filter: { key: 'k', header: ['h', 'v'] } });
  await bus.publish('filtered', 'no');
  await bus.publish('filtered', 'yes', 'k', { h: 'v' });
  assert.deepEqual(payloads(await seen.count(1)), ['yes']);
});

test('a second subscription to the same group is refused here', async () => {
  const bus = fixture.client();
  await collect(bus, { topic: 'twice', group: 'g' });
  assert.throws(
    () => bus.subscribe({ topic: 'twice', group: 'g' }, () => {}),
    (error: BusError) => error.code === 'already_subscribed',
  );
});

test('unsubscribe ends deliveries, also right after subscribe, and the place can be taken again', async () => {
  const bus = fixture.client();
  await bus.connected();
  const hasty = bus.subscribe({ topic: 'left', group: 'g' }, () => assert.fail('delivered after unsubscribe'));
  const left = hasty.unsubscribe();
  assert.equal(hasty.active, false);
  await assert.rejects(hasty.ready, (error: BusError) => error.code === 'closed');
  const seen = new Collected<MessageFrame>();
  const next = bus.subscribe({ topic: 'left', group: 'g' }, (m) => seen.push(m));
  await Promise.all([left, next.ready]);
  await bus.publish('left', 'for the second');
  await seen.count(1);
  await next.unsubscribe();
  await next.unsubscribe();
  await bus.publish('left', 'for nobody');
  await bus.ping();
  assert.equal(seen.all.length, 1);
  const other = await collect(fixture.client(), { topic: 'left', group: 'g' });
  assert.deepEqual(payloads(await other.count(2)), ['for the second', 'for nobody']);
});

test('a refused subscription says so to ready and to onError', async () => {
  const bus = fixture.client();
  const errors = new Collected<BusError>();
  const refused = bus.subscribe(
    { topic: 'bad topic', group: 'g' },
    () => {},
    (error) => errors.push(error),
  );
  await assert.rejects(refused.ready, (error: BusError) => error.code === 'bad_topic');
  assert.equal((await errors.count(1))[0]?.code, 'bad_topic');
  assert.equal(refused.active, false);
});

test('what a handler throws goes to onError with its message, sync or async, and the next one comes', async () => {
  const bus = fixture.client();
  const errors = new Collected<[BusError, MessageFrame | undefined]>();
  const subscription = bus.subscribe<number>(
    { topic: 'throws', group: 'g' },
    ({ envelope }) => {
      if (envelope.payload === 1) throw new Error('one');
      return Promise.reject(new Error('later'));
    },
    (error, message) => errors.push([error, message]),
  );
  await subscription.ready;
  await bus.publish('throws', 1);
  await bus.publish('throws', 2);
  const told = await errors.count(2);
  assert.deepEqual(
    told.map(([error, message]) => [error.code, (error.cause as Error).message, message?.envelope.payload]),
    [
      ['handler_failed', 'one', 1],
      ['handler_failed', 'later', 2],
    ],
  );
});

test("without onError the client's own hears of it", async () => {
  const errors = new Collected<BusError>();
  const bus = fixture.client({ onError: (error) => errors.push(error) });
  await bus.subscribe({ topic: 'unheard', group: 'g' }, () => {
    throw new Error('no');
  }).ready;
  await bus.publish('unheard', 1);
  assert.equal((await errors.count(1))[0]?.code, 'handler_failed');
});

test('what was never delivered here is not acknowledged', async () => {
  const bus = fixture.client();
  await collect(bus, { topic: 'strange', group: 'g' });
  const place = { topic: 'strange', partition: 0, group: 'g', offset: 7 };
  await assert.rejects(bus.ackConfirmed(place), (error: BusError) => error.code === 'stale');
  bus.ack({ type: 'ACK', ...place });
  await bus.ping();
});

async function committed(topic: string, group: string): Promise<number | undefined> {
  const answer = await fixture.broker.get<{ partitions: { groups: Record<string, { committed: number }> }[] }>(
    `/topics/${topic}/offsets`,
  );
  return answer.partitions[0]?.groups[group]?.committed;
}
