// The promise under fire: the server is killed and started again, over and over, while everybody works.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { type BusClient, type MessageFrame, type OpenTransport, TaskQueue, type TransportEnd } from '../src/index.js';
import { openNodeTransport } from '../src/node-transport.js';
import { Collected } from './collected.js';
import { withBroker } from './fixture.js';

const KILLS = 20;
const PUBLISHERS = 4;
/** Publishes each of them has in flight. */
const LANES = 8;
/** Confirmations between two kills, so that every life of the server does some work. */
const CONFIRMED_PER_LIFE = 200;

const fixture = withBroker();

/** Publishes one after the other and notes what was confirmed, until told to stop. */
async function publishUntil(
  stopped: () => boolean,
  bus: BusClient,
  topic: string,
  confirmed: Collected<string>,
): Promise<void> {
  for (let n = 0; !stopped(); n++) confirmed.push((await bus.publish(topic, n)).id);
}

test(`over ${KILLS} kills every awaited publish is stored once and delivered, and nothing leaks`, async () => {
  const unhandled: unknown[] = [];
  const note = (reason: unknown): void => void unhandled.push(reason);
  process.on('unhandledRejection', note);
  await fixture.broker.get('/healthz').catch(() => {});
  const before = resources();

  const confirmed = new Collected<string>();
  const delivered = new Set<string>();
  const progress = new Collected<void>();
  const worked = new Set<string>();
  let stopped = false;

  const connections = new Connections();
  const clients = Array.from({ length: PUBLISHERS + 2 }, () => fixture.client({ openTransport: connections.open }));
  const publishers = clients.slice(0, PUBLISHERS);
  const [consumer, worker] = clients.slice(PUBLISHERS) as [BusClient, BusClient];
  const errors: unknown[] = [];
  const onMessage = (message: MessageFrame): void => {
    delivered.add(message.envelope.id);
    consumer.ack(message);
    progress.push();
  };
  await consumer.subscribe({ topic: 'fire', group: 'g', from: { kind: 'earliest' } }, onMessage, (e) => errors.push(e))
    .ready;
  const queue = new TaskQueue(worker, 'fire');
  await queue.start(
    (task) => {
      worked.add(task.id);
      progress.push();
    },
    { onError: (error) => errors.push(error) },
  );

  const lanes = publishers.flatMap((bus) => Array.from({ length: LANES }, () => bus));
  const publishing = lanes.map((bus) => publishUntil(() => stopped, bus, 'fire', confirmed));
  for (let kill = 0; kill < KILLS; kill++) {
    await confirmed.count(confirmed.all.length + CONFIRMED_PER_LIFE);
    await fixture.broker.kill();
    await fixture.broker.restart();
    assert.ok(connections.live <= clients.length, `${connections.live} connections of ${clients.length} clients`);
  }
  await confirmed.count(confirmed.all.length + CONFIRMED_PER_LIFE);
  stopped = true;
  await Promise.all(publishing);

  const everything = (seen: Set<string>): boolean => confirmed.all.every((id) => seen.has(id));
  await progress.until(() => everything(delivered) && everything(worked));
  const stored = (await fixture.broker.stored('fire')).map(({ id }) => id);
  assert.deepEqual([...stored].sort(), [...confirmed.all].sort(), 'each confirmed event is stored exactly once');
  assert.ok(confirmed.all.length >= (KILLS + 1) * CONFIRMED_PER_LIFE);

  await queue.stop();
  await Promise.all(clients.map((client) => client.close()));
  process.off('unhandledRejection', note);
  assert.deepEqual(unhandled, []);
  assert.deepEqual(errors, []);
  assert.ok(connections.made >= clients.length * (KILLS + 1), `only ${connections.made} connections were made`);
  assert.equal(connections.live, 0);
  const after = resources();
  assert.ok(after.timers <= before.timers, `timers: ${before.timers} before, ${after.timers} after`);
  assert.ok(after.sockets <= before.sockets, `sockets: ${before.sockets} before, ${after.sockets} after`);
});

/** Counts what the clients open and see ended. */
class Connections {
  made = 0;
  live = 0;

  readonly open: OpenTransport = (url, token, events) => {
    this.made += 1;
    this.live += 1;
    const ended = (end: TransportEnd): void => {
      this.live -= 1;
      events.ended(end);
    };
    return openNodeTransport(url, token, { ...events, ended });
  };
}

/** What keeps the process alive. Sockets of `fetch` come and go, and may only be fewer. */
function resources(): { timers: number; sockets: number } {
  const names = process.getActiveResourcesInfo();
  const count = (name: string): number => names.filter((other) => other === name).length;
  return { timers: count('Timeout'), sockets: count('TCPSocketWrap') };
}
