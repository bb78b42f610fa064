// Publishes that nobody awaits: what is lost is told.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { BusClient, type BusError, PublishFailed } from '../src/index.js';
import { consoleReport } from '../src/report.js';
import { Collected } from './collected.js';
import { QUICK, withBroker } from './fixture.js';

const fixture = withBroker();
/** Another turn of the event loop: what the last one left undone has been looked at. */
const turn = (): Promise<void> => new Promise((resolve) => setTimeout(resolve, 1));

test('of 5,000 publishes in one turn those are told of that had no room, and the others are stored', async () => {
  const errors = new Collected<BusError>();
  const bus = fixture.client({ onError: (error) => errors.push(error) });
  await bus.connected();
  for (let n = 0; n < 5_000; n++) void bus.publish('crowd', n, { id: `event-${n}` });
  const told = await errors.count(3_976);
  await bus.flush();
  const stored = (await fixture.broker.stored('crowd')).map(({ id }) => id);
  const lost = told.flatMap((error) => (error as PublishFailed).ids);
  assert.equal(stored.length, 1_024);
  assert.deepEqual(new Set([...stored, ...lost]).size, 5_000);
  for (const error of told) assert.deepEqual([error.name, error.code], ['PublishFailed', 'queue_full']);
});

test('a refusal of the server is told with topic, id and reason', async () => {
  const errors = new Collected<BusError>();
  const bus = fixture.client({ onError: (error) => errors.push(error) });
  void bus.publish('no spaces', 1, { id: 'mine' });
  void bus.publishBatch('no spaces', [
    { payload: 1, id: 'a' },
    { payload: 2, id: 'b' },
  ]);
  const [one, batch] = (await errors.count(2)) as PublishFailed[];
  assert.ok(one instanceof PublishFailed && batch instanceof PublishFailed);
  assert.deepEqual([one.code, one.topic, one.ids], ['bad_topic', 'no spaces', ['mine']]);
  assert.match(one.message, /^event mine for no spaces not published: topic contains ' '/);
  assert.equal((one.cause as BusError).code, 'bad_topic');
  assert.deepEqual(batch.ids, ['a', 'b']);
});

test('what is awaited, in whatever way, is told to whoever awaits it and to nobody else', async () => {
  const errors = new Collected<BusError>();
  const bus = fixture.client({ onError: (error) => errors.push(error) });
  const refused = { code: 'bad_topic' };
  const passOn = async (): Promise<unknown> => bus.publish('no spaces', 5);
  await assert.rejects(bus.publish('no spaces', 1), refused);
  await assert.rejects(Promise.all([bus.publish('no spaces', 2), bus.publish('no spaces', 3)]), refused);
  await bus.publish('no spaces', 4).catch(() => {});
  await assert.rejects(passOn(), refused);
  await assert.rejects(bus.publish('no spaces', 6).finally(() => {}), refused);
  await assert.rejects(bus.publish('t', undefined), { code: 'bad_payload' });
  await turn();
  assert.deepEqual(errors.all, []);
});

test('a publish that its client was closed on is told of', async () => {
  const errors = new Collected<BusError>();
  const bus = new BusClient('ws://127.0.0.1:9', { ...QUICK, onError: (error) => errors.push(error) });
  void bus.publish('t', 1);
  await bus.close();
  void bus.publish('t', 2);
  const lost = await errors.until((all) => all.filter((error) => error instanceof PublishFailed).length === 2);
  const codes = lost.filter((error) => error instanceof PublishFailed).map(({ code }) => code);
  assert.deepEqual(codes, ['closed', 'closed']);
});

test('a task that nobody awaits is told of like any publish', async () => {
  const { TaskQueue } = await import('../src/index.js');
  const errors = new Collected<BusError>();
  const bus = fixture.client({ onError: (error) => errors.push(error) });
  void new TaskQueue(bus, 'no spaces').enqueue(1);
  assert.equal((await errors.count(1))[0]?.code, 'bad_topic');
});

test('without onError the console is told, ever more rarely, with the number so far', () => {
  const lines: string[] = [];
  const report = consoleReport((line) => lines.push(line));
  const full = { code: 'queue_full', message: 'full' } as BusError;
  for (let n = 0; n < 3_976; n++) report(full);
  report({ code: 'closed', message: 'gone' } as BusError);
  assert.equal(lines.length, 13);
  assert.equal(lines[0], 'millrace: full (queue_full; set onError to hear of all)');
  assert.equal(lines[11], 'millrace: full (queue_full, 2048 so far; set onError to hear of all)');
  assert.equal(lines[12], 'millrace: gone (closed; set onError to hear of all)');
});
