// Schemas of topics, on publish and on receipt.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { z } from 'zod';

import { type BusError, type MessageFrame, SchemaMismatch, type StandardSchema, TaskQueue } from '../src/index.js';
import { Collected } from './collected.js';
import { withBroker } from './fixture.js';

const fixture = withBroker();

const Order = z.object({ id: z.number(), at: z.coerce.date(), note: z.string().default('none') });

test('a publish that does not match is refused here and not sent, with every issue', async () => {
  const bus = fixture.client({ schemas: { orders: Order } });
  await assert.rejects(bus.publish('orders', { id: 'one', at: 'never' }), (error: SchemaMismatch) => {
    assert.equal(error.code, 'schema_mismatch');
    assert.match(error.message, /^the payload does not match the schema of orders: id: .*; at: /);
    assert.deepEqual(
      error.issues.map(({ path }) => path),
      [['id'], ['at']],
    );
    return true;
  });
  await assert.rejects(bus.publishBatch('orders', [{ payload: { id: 1, at: 0 } }, { payload: null }]), {
    code: 'schema_mismatch',
  });
  await bus.publish('orders', { id: 1, at: '2026-01-02' });
  await bus.publish('other', 'whatever');
  assert.deepEqual(
    (await fixture.broker.stored('orders')).map(({ payload }) => payload),
    [{ id: 1, at: '2026-01-02' }],
    'sent as it was given, so that every receiver may read it in its own way',
  );
});

test('a handler gets what the schema made of the payload, and its message can be acknowledged', async () => {
  const bus = fixture.client();
  bus.useSchema('parsed', Order);
  const seen = new Collected<MessageFrame<z.output<typeof Order>>>();
  await bus.subscribe<z.output<typeof Order>>({ topic: 'parsed', group: 'g' }, (m) => seen.push(m)).ready;
  await bus.publish('parsed', { id: 7, at: '2026-01-02T00:00:00Z', more: true });
  const [message] = await seen.count(1);
  assert.deepEqual(message?.envelope.payload, { id: 7, at: new Date('2026-01-02T00:00:00Z'), note: 'none' });
  assert.equal(bus.isCurrent(message as MessageFrame), true);
  await bus.ackConfirmed(message as MessageFrame);
});

test('a delivery that does not match reaches no handler, is told of, and ends as a dead letter', async () => {
  const [free, bus] = [fixture.client(), fixture.client({ schemas: { strict: Order } })];
  await free.registerTopic('strict', { maxAttempts: 2 });
  const [seen, errors] = [new Collected<unknown>(), new Collected<[BusError, number | undefined]>()];
  await bus.subscribe(
    { topic: 'strict', group: 'g' },
    (m) => {
      seen.push(m.envelope.payload);
      bus.ack(m);
    },
    (error, message) => errors.push([error, message?.offset]),
  ).ready;
  await free.publish('strict', { id: 'one' });
  await free.publish('strict', { id: 1, at: 0 });
  assert.equal((await seen.count(1)).length, 1);
  for (const [error, offset] of await errors.count(2)) {
    assert.ok(error instanceof SchemaMismatch);
    assert.equal(offset, 1);
  }
  const letters = new Collected<MessageFrame>();
  free.subscribe({ topic: 'strict.DLQ', group: 'g', from: { kind: 'earliest' } }, (m) => letters.push(m));
  const [letter] = await letters.count(1);
  assert.deepEqual(letter?.envelope.payload, { id: 'one' });
  const reason = letter?.envelope.headers?.['x-dlq-reason'] ?? '';
  assert.match(reason, /^schema_mismatch: the payload does not match the schema of strict: id: /);
  assert.equal(seen.all.length, 1);
});

test('a task queue hands out what the schema made of a task', async () => {
  const bus = fixture.client({ schemas: { tasks: z.object({ n: z.coerce.number() }) } });
  const queue = new TaskQueue<{ n: number | string }>(bus, 'tasks');
  const seen = new Collected<unknown>();
  await queue.start(({ payload }) => seen.push(payload));
  await queue.enqueue({ n: '42' });
  assert.deepEqual(await seen.count(1), [{ n: 42 }]);
  await queue.stop();
});

test('a function is a schema: it throws or returns false, takes the payload as it is, or makes another', async () => {
  const bus = fixture.client({
    schemas: {
      positive: (payload) => (payload as number) > 0,
      quiet: (payload) => {
        if (typeof payload !== 'string') throw new TypeError('give a text');
      },
      zodParse: (payload) => Order.parse(payload),
      doubled: (payload) => (payload as number) * 2,
    },
  });
  await bus.publish('positive', 1);
  await assert.rejects(bus.publish('positive', -1), { code: 'schema_mismatch', message: /positive: refused$/ });
  await bus.publish('quiet', 'yes');
  await assert.rejects(bus.publish('quiet', 1), { message: /schema of quiet: give a text$/ });
  await assert.rejects(bus.publish('zodParse', {}), (error: SchemaMismatch) => error.issues[0]?.path?.[0] === 'id');
  const seen = new Collected<unknown>();
  await bus.subscribe({ topic: 'doubled', group: 'g' }, (m) => seen.push(m.envelope.payload)).ready;
  await bus.publish('doubled', 21);
  assert.deepEqual(await seen.count(1), [42]);
  bus.useSchema('positive', undefined);
  await bus.publish('positive', -1);
});

test('an asynchronous schema is refused, because waiting for it would change the order of events', async () => {
  const late: StandardSchema = {
    '~standard': { version: 1, vendor: 'test', validate: async (value) => ({ value }) },
  };
  const bus = fixture.client({ schemas: { late } });
  await assert.rejects(bus.publish('late', 1), { message: /the schema is asynchronous/ });
});
