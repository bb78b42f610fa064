import assert from 'node:assert/strict';
import { test } from 'node:test';

import { type BusError, type MessageFrame, type Task, TaskQueue } from '../src/index.js';
import { Collected } from './collected.js';
import { withBroker } from './fixture.js';

const fixture = withBroker();

/** A door that tests open. */
class Gate {
  open!: () => void;
  readonly passed = new Promise<void>((resolve) => (this.open = resolve));
}

async function committed(topic: string): Promise<number | undefined> {
  const offsets = await fixture.broker.get<{ partitions: { groups: Record<string, { committed: number }> }[] }>(
    `/topics/${topic}/offsets`,
  );
  return offsets.partitions[0]?.groups['workers']?.committed;
}

test('a task reaches the handler as it was enqueued, also when the queue is older than its workers', async () => {
  const queue = new TaskQueue(fixture.client(), 'plain');
  const { id } = await queue.enqueue({ payload: 'wrapped by the user', list: [1] }, 'key');
  const tasks = new Collected<Task>();
  await queue.start((task) => tasks.push(task));
  assert.deepEqual(await tasks.count(1), [
    { id, topic: 'plain', payload: { payload: 'wrapped by the user', list: [1] }, key: 'key', attempts: 1 },
  ]);
  await queue.stop();
  assert.equal(await committed('plain'), 1);
});

test('tasks run in parallel up to the bound, and one that ends early completes only itself', async () => {
  const queue = new TaskQueue<number>(fixture.client(), 'parallel');
  const gates = [1, 2, 3, 4].map(() => new Gate());
  const started = new Collected<number>();
  const ended = new Collected<number>();
  await queue.start(
    async ({ payload }) => {
      started.push(payload);
      await gates[payload]?.passed;
      ended.push(payload);
    },
    { concurrency: 3 },
  );
  for (const n of [0, 1, 2, 3]) await queue.enqueue(n);
  assert.deepEqual(await started.count(3), [0, 1, 2]);
  gates[2]?.open();
  assert.deepEqual(await started.count(4), [0, 1, 2, 3], 'its place was taken');
  assert.deepEqual(await ended.count(1), [2]);
  assert.equal(await committed('parallel'), 0, 'the first still runs');
  for (const gate of gates) gate.open();
  await queue.stop();
  assert.equal(await committed('parallel'), 4);
});

test('a task that throws is tried again after its delay, with its count, and its error is told', async () => {
  const queue = new TaskQueue<string>(fixture.client(), 'retried');
  const attempts = new Collected<number>();
  const errors = new Collected<[BusError, MessageFrame | undefined]>();
  const delays: unknown[] = [];
  await queue.start(
    (task) => {
      attempts.push(task.attempts);
      if (task.attempts < 3) throw new Error(`attempt ${task.attempts}`);
    },
    {
      retryDelayMs: (task, error) => {
        delays.push([task.attempts, (error as Error).message]);
        return task.attempts;
      },
      onError: (error, message) => errors.push([error, message]),
    },
  );
  await queue.enqueue('x');
  assert.deepEqual(await attempts.count(3), [1, 2, 3]);
  assert.deepEqual(delays, [
    [1, 'attempt 1'],
    [2, 'attempt 2'],
  ]);
  assert.deepEqual(
    errors.all.map(([error, message]) => [error.code, message?.envelope.payload]),
    [
      ['handler_failed', 'x'],
      ['handler_failed', 'x'],
    ],
  );
  await queue.stop();
});

test('a task that never succeeds ends among the dead letters, with its reason', async () => {
  const bus = fixture.client();
  await bus.registerTopic('hopeless', { maxAttempts: 2 });
  const dead = new Collected<MessageFrame>();
  await bus.subscribe({ topic: 'hopeless.DLQ', group: 'g', from: { kind: 'earliest' } }, (m) => dead.push(m)).ready;
  const queue = new TaskQueue(bus, 'hopeless');
  await queue.start(() => Promise.reject(new Error('no hope')));
  await queue.enqueue('x');
  const [letter] = await dead.count(1);
  assert.equal(letter?.envelope.payload, 'x');
  assert.equal(letter?.envelope.headers?.['x-dlq-reason'], 'Error: no hope');
  await queue.stop();
});

test('stop waits for what runs, takes nothing new, and leaves the rest to others', async () => {
  const queue = new TaskQueue<number>(fixture.client(), 'stopping');
  const gate = new Gate();
  const started = new Collected<number>();
  await queue.start(
    async ({ payload }) => {
      started.push(payload);
      await gate.passed;
    },
    { concurrency: 2 },
  );
  for (const n of [0, 1, 2, 3]) await queue.enqueue(n);
  await started.count(2);
  let ended = false;
  const stopping = queue.stop().then(() => (ended = true));
  await fixture.client().publish('elsewhere', 1);
  assert.equal(ended, false);
  gate.open();
  await stopping;
  assert.deepEqual(started.all, [0, 1]);
  assert.equal(await committed('stopping'), 2);
  const others = new Collected<Task<number>>();
  const other = new TaskQueue<number>(fixture.client(), 'stopping');
  await other.start((task) => others.push(task));
  assert.deepEqual(
    (await others.count(2)).map(({ payload }) => payload),
    [2, 3],
  );
  await other.stop();
});

test('a queue can be started again after a stop, but not twice', async () => {
  const queue = new TaskQueue(fixture.client(), 'twice');
  const seen = new Collected<Task>();
  await queue.start((task) => seen.push(task));
  await assert.rejects(
    queue.start(() => {}),
    /already started/,
  );
  await queue.stop();
  await queue.stop();
  await queue.enqueue('later');
  await queue.start((task) => seen.push(task));
  await seen.count(1);
  await queue.stop();
});

test('a task that runs while the server is killed is not started again here, and its end still counts', async () => {
  const queue = new TaskQueue(fixture.client(), 'survivor');
  const gate = new Gate();
  const started = new Collected<Task>();
  await queue.start(async (task) => {
    started.push(task);
    await gate.passed;
  });
  await queue.enqueue('long');
  await started.count(1);
  await fixture.broker.kill();
  await fixture.broker.restart();
  // This task comes behind the second delivery of the first: when it has started, that one has been seen.
  await queue.enqueue('next');
  await started.count(2);
  gate.open();
  await queue.stop();
  assert.deepEqual(
    started.all.map(({ payload }) => payload),
    ['long', 'next'],
  );
  assert.equal(await committed('survivor'), 2);
});
