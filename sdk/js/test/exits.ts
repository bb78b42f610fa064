// Run by `reconnect.test.ts` as a process of its own: it must end by itself once its clients are closed.

import assert from 'node:assert/strict';

import { BusClient, TaskQueue } from '../src/index.js';

const bus = new BusClient(undefined, { backoff: { startMs: 5 } });
await bus.subscribe({ topic: 'exits', group: 'g' }, (message) => bus.ack(message)).ready;
const queue = new TaskQueue(bus, 'exits-tasks');
await queue.start(() => {});
await queue.enqueue('a task');
await bus.publish('exits', 1);
// A client that never finds its server, and is closed between two attempts or in the middle of one.
const lonely = new BusClient('ws://127.0.0.1:9', { backoff: { startMs: 1, maxMs: 1 } });
const unsent = lonely.publish('t', 1);
await Promise.all([bus.close(), lonely.close()]);
await assert.rejects(unsent, { code: 'closed' });
console.log('closed');
