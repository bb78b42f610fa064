// Contexts of OpenTelemetry travel with events: its own API, its own propagator, the real broker.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import * as api from '@opentelemetry/api';
import { AsyncLocalStorageContextManager } from '@opentelemetry/context-async-hooks';
import { W3CTraceContextPropagator } from '@opentelemetry/core';

import { withBroker } from './fixture.js';

const fixture = withBroker();
const TRACE = '0af7651916cd43dd8448eb211c80319c';
const SPAN = 'b7ad6b7169203331';
const TRACEPARENT = `00-${TRACE}-${SPAN}-01`;

before(() => {
  api.context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable());
  api.propagation.setGlobalPropagator(new W3CTraceContextPropagator());
});
after(() => api.context.disable());

const inSpan = <R>(call: () => R): R => {
  const span = { traceId: TRACE, spanId: SPAN, traceFlags: api.TraceFlags.SAMPLED };
  return api.context.with(api.trace.setSpanContext(api.context.active(), span), call);
};

test('a publish carries the context of its caller, and its handler runs in it', async () => {
  const bus = fixture.client({ openTelemetry: api });
  const seen = new Promise<api.SpanContext | undefined>((resolve) => {
    bus.subscribe({ topic: 'orders', group: 'billing' }, async (message) => {
      bus.ack(message);
      await Promise.resolve();
      resolve(api.trace.getSpanContext(api.context.active()));
    });
  });
  await inSpan(() => bus.publish('orders', 1, 'k', { note: 'kept' }));
  const context = await seen;
  assert.deepEqual([context?.traceId, context?.spanId, context?.isRemote], [TRACE, SPAN, true]);
  const [stored] = await fixture.broker.stored('orders');
  assert.deepEqual(stored?.headers, { note: 'kept', traceparent: TRACEPARENT });
});

test('events of a batch carry it, and a context that the caller set is not touched', async () => {
  const bus = fixture.client({ openTelemetry: api });
  const own = `00-${TRACE}-c8be7c827a314442-01`;
  await inSpan(() => bus.publishBatch('batch', [{ payload: 1 }, { payload: 2, headers: { traceparent: own } }]));
  const stored = await fixture.broker.stored('batch');
  assert.deepEqual(
    stored.map(({ headers }) => headers?.['traceparent']),
    [TRACEPARENT, own],
  );
});

test('nothing is added without a context, and nothing without the API', async () => {
  await fixture.client({ openTelemetry: api }).publish('plain', 1);
  await inSpan(() => fixture.client().publish('plain', 2));
  assert.deepEqual(
    (await fixture.broker.stored('plain')).map(({ headers }) => headers),
    [undefined, undefined],
  );
});
