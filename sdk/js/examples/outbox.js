// An order and the event that tells of it become true together, or neither does: node examples/outbox.js
// The store here is in memory. With a database, `place` is one transaction over both tables, and the drainer may run
// in any number of processes.

import { setTimeout as sleep } from 'node:timers/promises';

import { BusClient, drainOutbox, MemoryOutbox, uuidv7 } from 'millrace';

const BATCH = 100;
const POLL_MS = 250;

const bus = new BusClient();
const orders = [];
const outbox = new MemoryOutbox();

function place(order) {
  orders.push(order);
  outbox.add({ id: uuidv7(), topic: 'orders.placed', key: order.customer, payload: order });
}

let stopped = false;

async function drain() {
  while (!stopped) {
    const { claimed, sent, refused, postponed } = await drainOutbox(outbox, bus, { batch: BATCH });
    if (claimed > 0) console.log(`sent ${sent}, refused ${refused}`);
    if (postponed) console.error(`${postponed.rows} have to wait: ${postponed.error.message}`);
    if (claimed < BATCH) await sleep(POLL_MS);
  }
}

const draining = drain();
place({ customer: 'alice', total: 42.5 });
place({ customer: 'bob', total: 7 });

process.once('SIGINT', stop).once('SIGTERM', stop);

async function stop() {
  stopped = true;
  await draining;
  await bus.close();
}
