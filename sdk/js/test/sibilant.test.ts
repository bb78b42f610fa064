// The Sibilant helpers, compiled by the real compiler and run against the real server.

import assert from 'node:assert/strict';
import { createRequire } from 'node:module';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';

import type { BusClient, Published, PublishFrame, Subscription, TopicConfig } from '../src/index.js';
import { Collected } from './collected.js';
import { withBroker } from './fixture.js';

const fixture = withBroker();

interface Program {
  env: PublishFrame;
  headed: PublishFrame;
  topic: Promise<TopicConfig & { topic: string }>;
  consume(): Subscription;
  publishEnv(env: PublishFrame): Promise<Published>;
}

function run(bus: BusClient, seen: Collected<unknown>): Program {
  const sibilant = createRequire(import.meta.url)('sibilant') as (options: { file: string }) => { js: string };
  const file = fileURLToPath(new URL('../../test/sibilant-program.sibilant', import.meta.url));
  const program = {} as Program;
  new Function('exports', 'bus', 'seen', sibilant({ file }).js)(program, bus, seen);
  return program;
}

test('mk-env makes a frame, deftopic a topic, defconsumer a subscription that acknowledges', async () => {
  const errors = new Collected<unknown>();
  const bus = fixture.client({ onError: (error) => errors.push(error.cause) });
  const seen = new Collected<unknown>();
  const program = run(bus, seen);
  assert.deepEqual(JSON.parse(JSON.stringify([program.env, program.headed])), [
    { type: 'PUBLISH', topic: 'heart-beat.received', key: 'proc:7', payload: { pid: 7 } },
    { type: 'PUBLISH', topic: 't', headers: { ct: 'json' }, payload: null },
  ]);

  const { topic, partitions, maxAttempts } = await program.topic;
  assert.deepEqual({ topic, partitions, maxAttempts }, { topic: 'heart-beat.received', partitions: 3, maxAttempts: 2 });

  await program.consume().ready;
  const { partition, offset } = await program.publishEnv(program.env);
  assert.deepEqual(await seen.count(1), [{ pid: 7 }]);
  await bus.publish('heart-beat.received', { pid: 13 }, 'proc:13');
  assert.match(String((await errors.count(1))[0]), /an unlucky one/);
  // The body's ack is not confirmed to anybody: it is done when the group's commit says so.
  while ((await committed(partition)) !== offset) await bus.ping();
});

async function committed(partition: number): Promise<number | undefined> {
  const { partitions } = await fixture.broker.get<{ partitions: { groups: Record<string, { committed: number }> }[] }>(
    '/topics/heart-beat.received/offsets',
  );
  return partitions[partition]?.groups['monitor:one']?.committed;
}
