// The client and the task queue of the document that this broker was first described in, as they are printed there. They
// know nothing of acks that complete single offsets, of request ids or of attempts.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { test } from 'node:test';
import { setImmediate } from 'node:timers/promises';

import ts from 'typescript';

import { ServerList } from '../src/servers.js';
import { putTopic, type TopicConfig } from '../src/topics.js';
import { Broker } from './broker.js';

interface Task {
  payload: { payload: number };
}

interface Client {
  publish(topic: string, payload: unknown): void;
}

interface Queue {
  enqueue(payload: number): void;
  start(handler: (task: Task) => Promise<void>): void;
}

const TASKS = 100;
/** The runner ends a test after this long, and the test then ends its waits: an event that never comes is a failure, not a hang. */
const LIMIT = { timeout: 120_000 };
const fails = (n: number): boolean => n % 10 === 3;

/** Compiles the printed text and hands it the modules it asks for. */
function load<T>(file: string, modules: Record<string, unknown>): T {
  const text = readFileSync(new URL(`../../test/source-document/${file}`, import.meta.url), 'utf8');
  const compilerOptions = { module: ts.ModuleKind.CommonJS, target: ts.ScriptTarget.ES2022, esModuleInterop: true };
  const { outputText } = ts.transpileModule(text, { compilerOptions });
  const exported = {};
  const importModule = (name: string): unknown => modules[name] ?? createRequire(import.meta.url)(name);
  new Function('exports', 'require', outputText)(exported, importModule);
  return exported as T;
}

/** `undefined` until the group is there. */
async function committed(broker: Broker): Promise<number | undefined> {
  const offsets = await broker.get<{ partitions: { groups: Record<string, { committed: number }> }[] }>(
    '/topics/tasks/offsets',
  );
  return offsets.partitions[0]?.groups['workers']?.committed;
}

/** Waits until the group has committed up to `offset`, and has been made if none is given. Fails when the test is out of time. */
async function reached(broker: Broker, ended: AbortSignal, offset?: number): Promise<void> {
  for (let now = await committed(broker); now === undefined || (offset ?? now) !== now; now = await committed(broker)) {
    ended.throwIfAborted();
    await setImmediate();
  }
}

async function work(ended: AbortSignal, args: string[], config: TopicConfig, pause: () => Promise<void>): Promise<void> {
  const broker = await Broker.start(...args);
  const sockets: { terminate(): void; removeAllListeners(name: string): void }[] = [];
  try {
    await putTopic(new ServerList(broker.http, { hasToken: false }), {}, 'tasks', config);
    const { BusClient } = load<{ BusClient: new (url: string) => Client & { ws: (typeof sockets)[0] } }>('client.ts', {});
    const { TaskQueue } = load<{ TaskQueue: new (bus: Client, topic: string) => Queue }>('queue.ts', {});
    const worker = new BusClient(broker.ws);
    sockets.push(worker.ws);
    const done: number[] = [];
    const attempts = new Map<number, number>();
    new TaskQueue(worker, 'tasks').start(async ({ payload: { payload: n } }) => {
      attempts.set(n, (attempts.get(n) ?? 0) + 1);
      await pause();
      if (fails(n)) throw new Error('always');
      done.push(n);
    });
    // The queue begins at the tail, so it must be there before the first task is.
    await reached(broker, ended);
    const publisher = new BusClient(broker.ws);
    sockets.push(publisher.ws);
    const queue = new TaskQueue(publisher, 'tasks');
    for (let n = 0; n < TASKS; n++) queue.enqueue(n);
    await reached(broker, ended, TASKS);
    const letters = await broker.stored('tasks.DLQ');
    assert.deepEqual(
      done.sort((a, b) => a - b),
      Array.from({ length: TASKS }, (_, n) => n).filter((n) => !fails(n)),
    );
    assert.equal(letters.length, TASKS / 10);
    for (const { headers } of letters) assert.equal(headers?.['x-dlq-attempts'], '5');
    for (const [n, count] of attempts) assert.equal(count, fails(n) ? 5 : 1, `task ${n}`);
  } finally {
    for (const socket of sockets) {
      socket.removeAllListeners('close');
      socket.terminate();
    }
    await broker.remove();
  }
}

/** Tasks that run at the same time end in another order than they began. */
function anyOrder(): () => Promise<void> {
  let turns = 0;
  return async () => {
    for (let turn = (turns += 7) % 23; turn > 0; turn--) await setImmediate();
  };
}

test('its tasks that fail are tried five times, whatever is acked around them', LIMIT, ({ signal }) =>
  work(signal, [], {}, async () => {}));

test('its tasks may end in any order where the topic says that acks are individual', LIMIT, ({ signal }) => {
  return work(signal, [], { ackMode: 'individual' }, anyOrder());
});

test('or where the server says it', LIMIT, ({ signal }) => {
  return work(signal, ['--ack-mode', 'individual'], {}, anyOrder());
});
