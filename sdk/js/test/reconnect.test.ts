import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { test } from 'node:test';

import { BusClient, type BusError, type LinkState, type MessageFrame } from '../src/index.js';
import { Collected } from './collected.js';
import { QUICK, withBroker } from './fixture.js';

const fixture = withBroker();

test('publishes wait for a server that is not there yet, in order, up to the bound', async () => {
  await fixture.broker.kill();
  const bus = fixture.client({ publishesInflightMax: 3 });
  const sent = [1, 2, 3].map((n) => bus.publish('early', n));
  await assert.rejects(bus.publish('early', 4), (error: BusError) => error.code === 'queue_full');
  await assert.rejects(bus.ping(), (error: BusError) => error.code === 'connection_lost');
  await fixture.broker.restart();
  assert.deepEqual(
    (await Promise.all(sent)).map(({ offset }) => offset),
    [1, 2, 3],
  );
});

test('a subscription goes on over a restart, from the commit and without a second seek', async () => {
  const bus = fixture.client();
  await bus.publishBatch('resumed', [{ payload: 'a' }, { payload: 'b' }]);
  const seen = new Collected<MessageFrame>();
  const from = { kind: 'earliest', reset: true } as const;
  await bus.subscribe({ topic: 'resumed', group: 'g', from }, (m) => seen.push(m)).ready;
  await bus.ackConfirmed((await seen.count(2))[1] as MessageFrame);
  await fixture.broker.kill();
  await fixture.broker.restart();
  await bus.publish('resumed', 'c');
  assert.deepEqual(
    (await seen.count(3)).map(({ envelope }) => envelope.payload),
    ['a', 'b', 'c'],
  );
});

test('an ack from before the reconnect is stale, and the event comes again', async () => {
  const bus = fixture.client();
  const seen = new Collected<MessageFrame>();
  await bus.subscribe({ topic: 'stale', group: 'g' }, (m) => seen.push(m)).ready;
  await bus.publish('stale', 'x');
  const first = (await seen.count(1))[0] as MessageFrame;
  await fixture.broker.kill();
  await fixture.broker.restart();
  const second = (await seen.count(2))[1] as MessageFrame;
  assert.equal(bus.isCurrent(first), false);
  assert.equal(bus.isCurrent(second), true);
  await assert.rejects(bus.ackConfirmed(first), (error: BusError) => error.code === 'stale');
  bus.ack(first);
  await bus.ackConfirmed(second);
});

test('credits that were not used are asked for again', async () => {
  const bus = fixture.client();
  bus.flow(2);
  const seen = new Collected<MessageFrame>();
  await bus.subscribe({ topic: 'credits', group: 'g' }, (m) => seen.push(m)).ready;
  await bus.publish('credits', 1);
  await bus.ackConfirmed((await seen.count(1))[0] as MessageFrame);
  await fixture.broker.kill();
  await fixture.broker.restart();
  await bus.publishBatch('credits', [{ payload: 2 }, { payload: 3 }]);
  await seen.count(2);
  await bus.ping();
  assert.deepEqual(
    seen.all.map(({ envelope }) => envelope.payload),
    [1, 2],
  );
});

test('a server that stops properly loses no publish either', async () => {
  const bus = fixture.client();
  await bus.connected();
  const sent = Array.from({ length: 500 }, (_, n) => bus.publish('stopped', n));
  await fixture.broker.stop();
  await fixture.broker.restart();
  await Promise.all(sent);
  const ids = (await fixture.broker.stored('stopped')).map(({ id }) => id);
  assert.equal(new Set(ids).size, 500);
  assert.equal(ids.length, 500);
});

test('a subscription made and left while there is no server leaves nothing behind', async () => {
  const bus = fixture.client();
  await bus.connected();
  await fixture.broker.kill();
  const subscription = bus.subscribe({ topic: 'brief', group: 'g' }, () => {});
  await subscription.unsubscribe();
  await fixture.broker.restart();
  await bus.connected();
  await bus.publish('brief', 1);
  const offsets = await fixture.broker.get<{ partitions: { groups: object }[] }>('/topics/brief/offsets');
  assert.deepEqual(offsets.partitions[0]?.groups, {});
});

test('the states of a connection are told in order', async () => {
  const states = new Collected<LinkState>();
  const bus = fixture.client({ onState: (state) => states.push(state) });
  await bus.connected();
  await fixture.broker.kill();
  await states.until((all) => all.includes('waiting'));
  await fixture.broker.restart();
  await states.until((all) => all.filter((state) => state === 'open').length === 2);
  await bus.close();
  const told = states.all;
  assert.deepEqual(
    [told[0], told[1], told[2], told.at(-2), told.at(-1)],
    ['connecting', 'open', 'waiting', 'open', 'closed'],
  );
});

test('a client that may give up does, and says why', async () => {
  const errors = new Collected<BusError>();
  const bus = new BusClient('ws://127.0.0.1:9', { ...QUICK, giveUpAfterMs: 0 });
  const subscription = bus.subscribe(
    { topic: 't', group: 'g' },
    () => {},
    (error) => errors.push(error),
  );
  await assert.rejects(bus.connected(), (error: BusError) => error.code === 'unreachable');
  await assert.rejects(bus.publish('t', 1), (error: BusError) => error.code === 'unreachable');
  await assert.rejects(subscription.ready, (error: BusError) => error.code === 'unreachable');
  assert.equal((await errors.count(1))[0]?.code, 'unreachable');
  await bus.close();
});

test('a process ends by itself when its clients are closed', async () => {
  const script = fileURLToPath(new URL('exits.js', import.meta.url));
  const env = { ...process.env, BUS_URL: fixture.broker.ws };
  const child = spawn(process.execPath, ['--unhandled-rejections=strict', script], {
    env,
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  let output = '';
  child.stdout.on('data', (data: Buffer) => (output += data.toString()));
  const [code] = (await once(child, 'close')) as [number | null];
  assert.equal(output, 'closed\n');
  assert.equal(code, 0);
});
