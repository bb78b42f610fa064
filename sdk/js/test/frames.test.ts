// The types of `src/frames.ts` against the real server: what it sends has the types' fields, and it takes every field
// the types let a client send.

import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { test } from 'node:test';

import WebSocket from 'ws';

import {
  type ClientFrame,
  type Envelope,
  ERROR_CODES,
  type ErrorFrame,
  type MessageFrame,
  type MessagesFrame,
  type OkFrame,
  type PongFrame,
  type Position,
  type PublishedBatchFrame,
  type PublishedFrame,
  type ScheduledFrame,
  type ServerFrame,
  type SubscribedFrame,
} from '../src/index.js';
import { Collected } from './collected.js';
import { withBroker } from './fixture.js';
import { anything, integer, like, listOf, oneOf, optional, required, tableOf, text, textOrNull } from './shape.js';

const fixture = withBroker();

const rid = optional((value, at) => (typeof value === 'number' ? integer : text)(value, at));
const durability = required(oneOf('fsync', 'os', 'memory'));
const stream = { topic: required(text), partition: required(integer), group: required(text) };
const place = { ...stream, offset: required(integer) };

const envelope = like<Envelope>({
  id: required(text),
  ts: required(integer),
  topic: required(text),
  key: optional(text),
  partition: required(integer),
  offset: required(integer),
  headers: optional(tableOf(text)),
  priority: optional(integer),
  payload_sha256: optional(text),
  payload: required(anything),
  attempts: optional(integer),
});

const SHAPES = {
  published: like<PublishedFrame>({
    type: required(oneOf('PUBLISHED')),
    topic: required(text),
    partition: required(integer),
    offset: required(integer),
    id: required(text),
    durability,
    rid,
  }),
  scheduled: like<ScheduledFrame>({
    type: required(oneOf('PUBLISHED')),
    topic: required(text),
    due: required(integer),
    id: required(text),
    durability,
    rid,
  }),
  publishedBatch: like<PublishedBatchFrame>({
    type: required(oneOf('PUBLISHED')),
    topic: required(text),
    offsets: required(listOf(listOf(integer))),
    durability,
    rid,
  }),
  ok: like<OkFrame>({
    type: required(oneOf('OK')),
    op: required(oneOf('UNSUBSCRIBE', 'ACK', 'NACK', 'FLOW', 'AUTH')),
    rid,
  }),
  subscribed: like<SubscribedFrame>({
    type: required(oneOf('OK')),
    op: required(oneOf('SUBSCRIBE')),
    topic: required(text),
    group: required(text),
    partitions: required(listOf(like<Position>({ partition: required(integer), next: required(integer) }))),
    rid,
  }),
  message: like<MessageFrame>({ type: required(oneOf('MESSAGE')), ...place, envelope: required(envelope) }),
  messages: like<MessagesFrame>({
    type: required(oneOf('MESSAGES')),
    ...stream,
    envelopes: required(listOf(envelope)),
  }),
  pong: like<PongFrame>({ type: required(oneOf('PONG')), rid }),
  error: like<ErrorFrame>({
    type: required(oneOf('ERROR')),
    code: required(oneOf(...ERROR_CODES)),
    message: required(text),
    rid,
    topic: optional(text),
    group: optional(text),
    partition: optional(integer),
    offset: optional(integer),
    leader: optional(textOrNull),
  }),
};

type Kind = keyof typeof SHAPES;

function kindOf(frame: ServerFrame): Kind {
  switch (frame.type) {
    case 'PUBLISHED':
      return 'offsets' in frame ? 'publishedBatch' : 'due' in frame ? 'scheduled' : 'published';
    case 'OK':
      return frame.op === 'SUBSCRIBE' ? 'subscribed' : 'ok';
    case 'MESSAGE':
      return 'message';
    case 'MESSAGES':
      return 'messages';
    case 'PONG':
      return 'pong';
    case 'ERROR':
      return 'error';
  }
}

/** The bare socket, so that nothing of the client stands between the types and the server. */
async function connect(): Promise<{ say(frame: ClientFrame): void; heard: Collected<ServerFrame>; end(): void }> {
  const socket = new WebSocket(fixture.broker.ws);
  const heard = new Collected<ServerFrame>();
  socket.on('message', (data) => heard.push(JSON.parse(data.toString()) as ServerFrame));
  await new Promise((resolve, reject) => socket.on('open', resolve).on('error', reject));
  return { say: (frame) => socket.send(JSON.stringify(frame)), heard, end: () => socket.terminate() };
}

const answerTo = (rid: number) => (all: ServerFrame[]) =>
  all.some((frame) => 'rid' in frame && frame.rid === rid);

test('every kind of frame the server sends has the fields of its type', async () => {
  const { say, heard, end } = await connect();
  const [topic, group] = ['kinds', 'g'];
  say({
    type: 'SUBSCRIBE',
    topic,
    group,
    from: { kind: 'earliest', reset: true },
    max_inflight: 5,
    ack_mode: 'individual',
    filter: { key: 'k', header: ['h', 'v'] },
    rid: 1,
  });
  await heard.until(answerTo(1));
  say({ type: 'SUBSCRIBE', topic, group: 'batches', batch_max: 10, rid: 13 });
  await heard.until(answerTo(13));
  say({ type: 'PUBLISH', topic, payload: null, key: 'k', headers: { h: 'v' }, id: 'my-id', priority: 7, rid: 2 });
  say({ type: 'PUBLISH', topic, payload: 1, key: 'k', delay_ms: 1, rid: 3 });
  say({ type: 'PUBLISH', topic, payload: 1, deliver_at: 1, rid: 4 });
  say({ type: 'PUBLISH_BATCH', topic, events: [{ payload: [], key: 'k', headers: {}, id: 'b', priority: 0 }], rid: 5 });
  const isMessage = (frame: ServerFrame): frame is MessageFrame => frame.type === 'MESSAGE';
  await heard.until((all) => all.some(isMessage) && all.some(({ type }) => type === 'MESSAGES'));
  say({ type: 'NACK', topic, partition: 0, group, offset: 1, reason: 'again', delay_ms: 0, rid: 6 });
  await heard.until((all) => all.filter(isMessage).some(({ envelope }) => envelope.attempts === 2));
  say({ type: 'ACK', topic, partition: 0, group, offset: 1, rid: 7 });
  say({ type: 'ACK', topic, partition: 0, group, offset: 99 });
  say({ type: 'FLOW', credits: 9, rid: 8 });
  say({ type: 'PING', rid: 9 });
  say({ type: 'AUTH', token: 'open to everyone', rid: 10 });
  await heard.until((all) => [1, 2, 3, 4, 5, 6, 7, 8, 9, 10].every((rid) => answerTo(rid)(all)));
  say({ type: 'UNSUBSCRIBE', topic, group, rid: 11 });
  say({ type: 'PUBLISH', topic: 'a b', payload: 1, rid: 12 });
  await heard.until((all) => answerTo(11)(all) && answerTo(12)(all) && all.some(({ type }) => type === 'ERROR'));
  end();

  for (const frame of heard.all) SHAPES[kindOf(frame)](frame, frame.type);
  assert.deepEqual([...new Set(heard.all.map(kindOf))].sort(), Object.keys(SHAPES).sort());
  const refused = heard.all.filter((frame): frame is ErrorFrame => frame.type === 'ERROR');
  assert.deepEqual(refused.map(({ code, rid }) => [code, rid]).sort(), [
    ['bad_topic', 12],
    ['unknown_offset', undefined],
  ]);
  const ops = heard.all.flatMap((frame) => (frame.type === 'OK' ? [frame.op] : []));
  assert.deepEqual(ops.sort(), ['ACK', 'AUTH', 'FLOW', 'NACK', 'SUBSCRIBE', 'SUBSCRIBE', 'UNSUBSCRIBE']);
});

test('every way to begin is taken', async () => {
  const { say, heard, end } = await connect();
  say({ type: 'SUBSCRIBE', topic: 'ways', group: 'a', from: { kind: 'latest' }, rid: 1 });
  say({
    type: 'SUBSCRIBE',
    topic: 'ways',
    group: 'b',
    from: { kind: 'offset', value: 0 },
    ack_mode: 'cumulative',
    rid: 2,
  });
  say({ type: 'SUBSCRIBE', topic: 'ways', group: 'c', from: { kind: 'timestamp', value: 0 }, rid: 3 });
  await heard.until((all) => [1, 2, 3].every((rid) => answerTo(rid)(all)));
  end();
  assert.deepEqual(heard.all.map(kindOf), ['subscribed', 'subscribed', 'subscribed']);
});

test("the error codes are the server's, no more and no fewer", async () => {
  const source = await readFile(new URL('../../../../crates/words/wire/src/code.rs', import.meta.url), 'utf8');
  const table = /^codes! \{(.*?)^\}/ms.exec(source)?.[1] ?? '';
  const codes = [...table.matchAll(/^\s*\w+ "([a-z_]+)"/gm)].map((match) => match[1]);
  assert.deepEqual(codes, [...ERROR_CODES]);
});

test('a frame with an unknown field, or without a promised one, is noticed', () => {
  assert.throws(() => SHAPES.pong({ type: 'PONG', extra: 1 }, 'PONG'), /PONG.extra is 1: it must be absent/);
  assert.throws(() => SHAPES.error({ type: 'ERROR', code: 'bad_json' }, 'ERROR'), /ERROR.message is undefined/);
});
