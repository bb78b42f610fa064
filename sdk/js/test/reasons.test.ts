// Why there is no connection: whoever waits for one is told.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { test } from 'node:test';

import { BusClient, type BusError, Disconnected, OsClient } from '../src/index.js';
import { reasonOf } from '../src/transport.js';
import { Collected } from './collected.js';
import { QUICK, withBroker } from './fixture.js';

const fixture = withBroker('--grace-ms', '100');

/** Nobody listens there. */
const NOBODY = 'ws://127.0.0.1:9';

test('a server that is not there is told to onError once, with the reason, and to onState', async () => {
  const errors = new Collected<BusError>();
  const states = new Collected<[string, string | undefined]>();
  const bus = new BusClient(NOBODY, {
    ...QUICK,
    onError: (error) => errors.push(error),
    onState: (state, reason) => states.push([state, reason]),
  });
  await states.until((all) => all.filter(([state]) => state === 'waiting').length === 3);
  assert.equal(errors.all.length, 1);
  assert.ok(errors.all[0] instanceof Disconnected);
  const expected = /^no connection to ws:\/\/127\.0\.0\.1:9\/: connect ECONNREFUSED .*; trying again$/;
  assert.match(errors.all[0].message, expected);
  assert.match(String(states.all.find(([state]) => state === 'waiting')?.[1]), /ECONNREFUSED/);
  await assert.rejects(bus.ping(), { message: /not connected just now: connect ECONNREFUSED/ });
  await bus.close();
});

test('a name with several addresses fails with the reason of each', async () => {
  const errors = new Collected<BusError>();
  const bus = new BusClient('ws://localhost:9', { ...QUICK, onError: (error) => errors.push(error) });
  assert.match((await errors.count(1))[0]?.message ?? '', /connect ECONNREFUSED/);
  await bus.close();
  const both = new AggregateError([new Error('refused at ::1'), new Error('refused at 127.0.0.1')]);
  assert.equal(reasonOf(both), 'refused at ::1; refused at 127.0.0.1');
});

test('a loss is told once, then the reason of failed attempts once, and after a connection anew', async () => {
  const errors = new Collected<BusError>();
  const states = new Collected<string>();
  const bus = fixture.client({ onError: (error) => errors.push(error), onState: (state) => states.push(state) });
  const opened = (times: number) => states.until((all) => all.filter((state) => state === 'open').length === times);
  await bus.connected();
  await fixture.broker.kill();
  await errors.until((all) => all.some(({ message }) => /ECONNREFUSED/.test(message)));
  await fixture.broker.restart();
  await opened(2);
  const before = errors.all.length;
  assert.ok(before <= 3, errors.all.join('\n'));
  await fixture.broker.kill();
  await errors.count(before + 1);
  await fixture.broker.restart();
  await opened(3);
  for (const error of errors.all) assert.equal(error.code, 'connection_lost');
});

test('what the server says about a refused upgrade is part of the error', async () => {
  const server = createServer().on('upgrade', (_request, socket) => {
    const body = JSON.stringify({ title: 'Unauthorized', detail: 'this token is not known' });
    socket.on('error', () => {});
    socket.end(`HTTP/1.1 401 No\r\nconnection: close\r\ncontent-length: ${body.length}\r\n\r\n${body}`);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const url = `ws://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const refused = { code: 'rejected', message: /refused the connection with status 401: this token is not known$/ };
  const bus = new BusClient(url, { ...QUICK, onError: () => {} });
  await assert.rejects(bus.connected(), refused);
  await assert.rejects(OsClient.connect(url), refused);
  server.close();
});

test('a topic that cannot be registered because nobody is there says so', async () => {
  const bus = new BusClient(NOBODY, { ...QUICK, onError: () => {} });
  await assert.rejects(bus.registerTopic('t'), {
    code: 'unreachable',
    message: /^cannot reach http:\/\/127\.0\.0\.1:9\/topics: (connect ECONNREFUSED|bad port)/,
  });
  await bus.close();
});

test('a socket that is not there is named', async () => {
  await assert.rejects(OsClient.connect('/nowhere/millrace.sock'), { code: 'unreachable', message: /ENOENT/ });
});
