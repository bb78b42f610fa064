// The client of the loop against servers that say only what a test tells them to.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { createServer, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { afterEach, test } from 'node:test';

import { WebSocketServer } from 'ws';

import {
  BadPayload,
  BadUrl,
  Closed,
  ConnectionLost,
  OsClient,
  type OsClientOptions,
  OsError,
  type OsMessage,
  QueueFull,
  Rejected,
  TimedOut,
  TooLarge,
  Unreachable,
} from '../src/index.js';
import { osUrl } from '../src/os-address.js';
import { defaultSocket } from '../src/unix-transport.js';

const ends: (() => unknown)[] = [];
afterEach(async () => {
  for (const end of ends.splice(0).reverse()) await end();
});

/** What one connection says to the test, and the other way round. */
interface Peer {
  /** The next message; `undefined` when the client has stopped writing. */
  read(): Promise<OsMessage | undefined>;
  write(...texts: string[]): void;
  /** Resolves when it has left. */
  writeByte(byte: number): Promise<void>;
  drop(): void;
}

async function connected(options: OsClientOptions = {}): Promise<{ client: OsClient; peer: Peer; path: string }> {
  const folder = await mkdtemp(join(tmpdir(), 'millrace-os-'));
  ends.push(() => rm(folder, { recursive: true }));
  const path = join(folder, 'os.sock');
  const server = createServer({ allowHalfOpen: true });
  server.listen(path);
  await once(server, 'listening');
  ends.push(() => server.close());
  const accepted = once(server, 'connection') as Promise<[Socket]>;
  const [client, [socket]] = await Promise.all([OsClient.connect(path, options), accepted]);
  ends.push(() => socket.destroy());
  socket.on('error', () => {});
  socket.on('end', () => socket.end());
  const lines = createInterface(socket)[Symbol.asyncIterator]();
  const peer: Peer = {
    async read() {
      const { value, done } = await lines.next();
      return done ? undefined : (JSON.parse(value) as OsMessage);
    },
    write: (...texts) => void socket.write(texts.map((text) => `${text}\n`).join('')),
    writeByte: (byte) => new Promise((resolve) => socket.write(Uint8Array.of(byte), () => resolve())),
    drop: () => void socket.destroy(),
  };
  ends.push(() => client.close());
  return { client, peer, path };
}

function outcome(kind: string, request: OsMessage | undefined, data: unknown): string {
  const metadata = { id: 'r', timestamp: 1, causation: request?.metadata.id };
  return JSON.stringify({ kind, type: request?.type ?? 'Validation.Failed', data, metadata });
}

test('outcomes find their requests in any order', async () => {
  const { client, peer } = await connected();
  const one = client.query('A.B', { n: 1 }, { correlation: 'c', causation: 'before' });
  const two = client.command('A.C');
  const bad = client.query('A.D', null);
  const requests = [await peer.read(), await peer.read(), await peer.read()];
  assert.deepEqual(
    requests.map((request) => [request?.kind, request?.type, request?.data]),
    [
      ['query', 'A.B', { n: 1 }],
      ['command', 'A.C', {}],
      ['query', 'A.D', null],
    ],
  );
  const { id, timestamp, ...lineage } = requests[0]!.metadata;
  assert.deepEqual(lineage, { correlation: 'c', causation: 'before' });
  assert.match(id, /^[0-9a-f-]{36}$/);
  assert.ok(Math.abs(timestamp - Date.now()) < 600_000);
  const fault = { code: 404, message: 'no such', cause: { code: 502, message: 'upstream' } };
  peer.write(outcome('error', requests[2], fault), '', outcome('reply', requests[1], 'two'));
  peer.write(outcome('reply', requests[0], 1));
  assert.equal(await one, 1);
  assert.equal(await two, 'two');
  const error = await bad.catch((error: unknown) => error);
  assert.ok(error instanceof OsError);
  assert.deepEqual([error.code, error.message, error.type], [404, 'no such', 'A.D']);
  assert.equal((error.cause as OsError).code, 502);
});

test('an answer in pieces, within a character too, is one answer', async () => {
  const { client, peer } = await connected();
  const asked = client.query('A.B');
  const line = Buffer.from(`${outcome('reply', await peer.read(), 'müll 🦆')}\n`);
  for (const byte of line) await peer.writeByte(byte);
  assert.equal(await asked, 'müll 🦆');
});

test('a late outcome reaches nobody and the connection goes on', async () => {
  const { client, peer } = await connected();
  await assert.rejects(client.query('A.B', {}, { timeoutMs: 10 }), (error) => error instanceof TimedOut);
  const stop = new AbortController();
  const stopped = client.query('A.B', {}, { signal: stop.signal });
  stop.abort(new Error('enough'));
  await assert.rejects(stopped, /enough/);
  await assert.rejects(client.query('A.B', {}, { signal: stop.signal }), /enough/);
  const asked = client.query('A.B');
  const [late, aborted, request] = [await peer.read(), await peer.read(), await peer.read()];
  peer.write(outcome('reply', late, 1), outcome('reply', aborted, 2), outcome('reply', request, 3));
  assert.equal(await asked, 3);
});

test('a lost connection ends what is under way and everything later', async () => {
  const lost: Error[] = [];
  const { client, peer } = await connected({ onEnd: (error) => lost.push(error) });
  const under = client.query('A.B');
  await peer.read();
  peer.drop();
  await assert.rejects(under, (error) => error instanceof ConnectionLost);
  await assert.rejects(client.query('A.B'), (error) => error instanceof ConnectionLost);
  await assert.rejects(client.emit('A.B'), (error) => error instanceof ConnectionLost);
  assert.equal(client.connected, false);
  assert.equal(lost.length, 1);
});

test('bounds refuse at once', async () => {
  const { client, peer } = await connected({ requestsInflightMax: 1 });
  const first = client.query('A.B');
  await assert.rejects(client.query('A.B'), (error) => error instanceof QueueFull);
  peer.write(outcome('reply', await peer.read(), 1));
  assert.equal(await first, 1);
  await assert.rejects(client.query('A.B', 'ü'.repeat(8_200)), (error) => error instanceof TooLarge);
  const loop: Record<string, unknown> = {};
  loop['self'] = loop;
  await assert.rejects(client.query('A.B', loop), (error) => error instanceof BadPayload);
  await assert.rejects(client.query('A.B', () => {}), (error) => error instanceof BadPayload);
});

test('what nobody reads fills the room for unsent bytes', async () => {
  const { client } = await connected({ unsentBytesMax: 100_000 });
  const emitted = async (): Promise<number> => {
    for (let count = 0; ; count += 1) {
      try {
        await client.emit('A.B', 'x'.repeat(10_000));
      } catch (error) {
        assert.ok(error instanceof QueueFull);
        return count;
      }
    }
  };
  assert.ok((await emitted()) > 5);
});

test('errors that concern no request are told', async () => {
  const told: Error[] = [];
  const { client, peer } = await connected({ onError: (error) => told.push(error) });
  await client.emit('User.Created', { name: 'duck' });
  const event = await peer.read();
  assert.equal(event?.kind, 'event');
  const asked = client.query('A.B');
  const request = await peer.read();
  peer.write(outcome('error', event, { code: 422, message: 'no' }), 'nonsense', outcome('error', undefined, 'odd'));
  peer.write(outcome('reply', request, 1));
  await asked;
  assert.deepEqual(
    told.map((error) => [(error as OsError).code, error.message]),
    [
      [422, 'no'],
      ['bad_message', 'the server sent what is no message: nonsense'],
      [500, '"odd"'],
    ],
  );
});

test('close waits for what was asked, then says goodbye', async () => {
  const { client, peer } = await connected();
  const asked = client.query('A.B');
  const request = await peer.read();
  const closed = client.close();
  await assert.rejects(client.query('A.B'), (error) => error instanceof Closed);
  peer.write(outcome('reply', request, 5));
  assert.equal(await asked, 5);
  assert.equal(await peer.read(), undefined);
  peer.drop();
  await closed;
  await client.close();
});

test('a token is told where no upgrade carries it', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'millrace-os-'));
  ends.push(() => rm(folder, { recursive: true }));
  const path = join(folder, 'os.sock');
  const server = createServer((socket) => {
    createInterface(socket).on('line', (line) => {
      const request = JSON.parse(line) as OsMessage<{ token: string }>;
      const fine = request.type === 'Syscall.Authenticate' && request.data.token === 'right';
      const answer = fine ? outcome('reply', request, {}) : outcome('error', request, { code: 401, message: 'no' });
      socket.write(`${answer}\n`);
    });
  });
  server.listen(path);
  await once(server, 'listening');
  ends.push(() => server.close());
  await (await OsClient.connect(path, { token: 'right' })).close();
  await assert.rejects(
    OsClient.connect(path, { token: 'wrong' }),
    (error) => error instanceof OsError && error.code === 401,
  );
});

test('the same over a WebSocket at /os', async () => {
  const server = new WebSocketServer({ port: 0, host: '127.0.0.1' });
  await once(server, 'listening');
  ends.push(() => server.close());
  const seen: unknown[] = [];
  server.on('connection', (socket, request) => {
    seen.push(request.url, request.headers.authorization);
    socket.on('message', (data: Buffer) => {
      const message = JSON.parse(data.toString()) as OsMessage;
      socket.send(outcome('reply', message, { echo: message.data }));
    });
  });
  const { port } = server.address() as { port: number };
  const client = await OsClient.connect(`ws://127.0.0.1:${port}`, { token: 't' });
  assert.deepEqual(await client.query('A.B', 'x'), { echo: 'x' });
  await client.close();
  assert.deepEqual(seen, ['/os', 'Bearer t']);
});

test('a place where nobody is', async () => {
  await assert.rejects(
    OsClient.connect('/nonexistent/os.sock'),
    (error) => error instanceof Unreachable && error.message.includes('/nonexistent/os.sock'),
  );
  await assert.rejects(OsClient.connect('ws://127.0.0.1:1'), (error) => error instanceof Unreachable);
  await assert.rejects(OsClient.connect('tcp://127.0.0.1:1'), (error) => error instanceof BadUrl);
  const refusing = new WebSocketServer({ port: 0, host: '127.0.0.1', verifyClient: () => false });
  await once(refusing, 'listening');
  ends.push(() => refusing.close());
  const { port } = refusing.address() as { port: number };
  await assert.rejects(
    OsClient.connect(`ws://127.0.0.1:${port}`),
    (error) => error instanceof Rejected && error.status === 401,
  );
});

test('addresses', () => {
  assert.equal(osUrl('ws://broker:1'), 'ws://broker:1/os');
  assert.equal(osUrl('https://broker:1/'), 'wss://broker:1/os');
  assert.equal(osUrl('ws://broker:1/elsewhere'), 'ws://broker:1/elsewhere');
  const before = { ...process.env };
  delete process.env['MILLRACE_SOCKET'];
  process.env['XDG_RUNTIME_DIR'] = '/run/user/1';
  assert.equal(defaultSocket(), '/run/user/1/millrace/millrace.sock');
  process.env['MILLRACE_SOCKET'] = '/elsewhere';
  assert.equal(defaultSocket(), '/elsewhere');
  process.env = before;
});
