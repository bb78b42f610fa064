// A server that will not take a subscription back just now is asked again.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import type { BusClient, BusError, MessageFrame, Subscription } from '../src/index.js';
import { Collected } from './collected.js';
import { withBroker } from './fixture.js';

const LIMITS = ['--connection-rate', '20', '--connection-burst', '5'];
const SUBSCRIPTIONS = 20;

const fixture = withBroker('--metrics-interval-ms', '0');

async function restart(...flags: string[]): Promise<void> {
  await fixture.broker.kill();
  await fixture.broker.restart(...flags);
}

/** Asks more than the rate allows, so that the next request is refused. */
async function useUpRate(bus: BusClient): Promise<void> {
  const outcomes = await Promise.allSettled(Array.from({ length: 20 }, () => bus.publish('busy', 1)));
  assert.ok(outcomes.some(({ status }) => status === 'rejected'));
}

test('subscriptions that a rate limit keeps out after a reconnect come back, all of them', async () => {
  const bus = fixture.client();
  const seen = new Collected<string>();
  const errors = new Collected<BusError>();
  const subscriptions: Subscription[] = [];
  for (let n = 0; n < SUBSCRIPTIONS; n++) {
    await bus.publish(`many-${n}`, n);
    const request = { topic: `many-${n}`, group: 'g', from: { kind: 'earliest' } } as const;
    const note = ({ topic }: MessageFrame): void => seen.push(topic);
    subscriptions.push(bus.subscribe(request, note, (error) => errors.push(error)));
  }
  await seen.count(SUBSCRIPTIONS);
  await restart(...LIMITS);
  // Nothing was acknowledged: each of them gets its event again.
  await seen.count(2 * SUBSCRIPTIONS);
  assert.equal(new Set(seen.all.slice(SUBSCRIPTIONS)).size, SUBSCRIPTIONS);
  assert.ok(subscriptions.every(({ active }) => active));
  assert.ok(errors.all.length > 0 && errors.all.length < SUBSCRIPTIONS, 'each that was kept out was told once');
  assert.ok(errors.all.every(({ code }) => code === 'rate_limited'));
});

test('a refusal of the first SUBSCRIBE is the answer to whoever asked', async () => {
  await restart(...LIMITS);
  const bus = fixture.client();
  await bus.connected();
  const subscriptions = Array.from({ length: SUBSCRIPTIONS }, (_, n) =>
    bus.subscribe({ topic: `first-${n}`, group: 'g' }, () => {}),
  );
  const outcomes = await Promise.allSettled(subscriptions.map(({ ready }) => ready));
  const refused = outcomes.flatMap((outcome) => (outcome.status === 'rejected' ? [outcome.reason as BusError] : []));
  assert.ok(refused.length > 0 && refused.every(({ code }) => code === 'rate_limited'));
  assert.deepEqual(
    subscriptions.map(({ active }) => active),
    outcomes.map(({ status }) => status === 'fulfilled'),
  );
});

test('a subscription that is left while it is kept out stays away, and holds nobody up', async () => {
  await restart();
  const bus = fixture.client();
  const seen = new Collected<string>();
  const left = new Collected<string>();
  for (let n = 0; n < SUBSCRIPTIONS; n++) {
    const topic = `left-${n}`;
    await bus.publish(topic, n);
    const subscription = bus.subscribe(
      { topic, group: 'g', from: { kind: 'earliest' } },
      () => seen.push(topic),
      () => {
        if (left.all.length > 0) return;
        left.push(topic);
        void subscription.unsubscribe();
      },
    );
  }
  await seen.count(SUBSCRIPTIONS);
  await restart(...LIMITS);
  // The topic that was left would have been asked for before those that were refused after it.
  await seen.count(2 * SUBSCRIPTIONS - 1);
  const [topic] = await left.count(1);
  assert.equal(await members(topic as string), 0);
});

test('a resize that is refused is asked for again', async () => {
  await restart(...LIMITS);
  const bus = fixture.client();
  await bus.publishBatch('wider', [{ payload: 1 }, { payload: 2 }, { payload: 3 }]);
  const seen = new Collected<MessageFrame>();
  const request = { topic: 'wider', group: 'g', max_inflight: 1, from: { kind: 'earliest' } } as const;
  const subscription = bus.subscribe(request, (message) => seen.push(message));
  await subscription.ready;
  await useUpRate(bus);
  subscription.resize(3);
  await seen.count(3);
});

test('an unsubscribe that is refused is asked for again before it resolves', async () => {
  await restart(...LIMITS);
  const bus = fixture.client();
  const subscription = bus.subscribe({ topic: 'leaving', group: 'g' }, () => {});
  await subscription.ready;
  await useUpRate(bus);
  await subscription.unsubscribe();
  assert.equal(await members('leaving'), 0);
});

test('a subscription survives a server whose store has failed', async () => {
  await fixture.broker.kill();
  fixture.broker.fileBlocksMax = 20_000;
  await fixture.broker.restart();
  fixture.broker.fileBlocksMax = undefined;
  const bus = fixture.client({ onError: () => {} });
  const seen = new Collected<unknown>();
  const subscription = bus.subscribe({ topic: 'survivor', group: 'g' }, ({ envelope }) => seen.push(envelope.payload));
  await subscription.ready;
  const fill = async (): Promise<never> => {
    for (;;) await bus.publish('filler', 'x'.repeat(100_000));
  };
  await assert.rejects(fill(), { code: 'storage_failed' });
  // The server ends by itself, having answered everybody.
  await fixture.broker.ended();
  assert.equal(subscription.active, true);
  await restart();
  await bus.publish('survivor', 'alive');
  assert.deepEqual(await seen.count(1), ['alive']);
});

/** How many members the group has, as the server sees it. */
async function members(topic: string): Promise<number> {
  const { groups } = await fixture.broker.get<{ groups: { members: number }[] }>(`/topics/${topic}/groups`);
  return groups.reduce((sum, group) => sum + group.members, 0);
}
