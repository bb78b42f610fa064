// Things that the real server does not do on demand: fall silent, ask for a token, refuse an upgrade. A small server of
// the package `ws` does.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { Duplex } from 'node:stream';
import { afterEach, test } from 'node:test';

import { type WebSocket, WebSocketServer } from 'ws';

import { BusClient, type BusError, type ClientFrame, type Transport } from '../src/index.js';
import { openNodeTransport } from '../src/node-transport.js';
import { Collected } from './collected.js';
import { QUICK } from './fixture.js';

const ends: (() => Promise<unknown>)[] = [];
afterEach(async () => {
  for (const end of ends.splice(0).reverse()) await end();
});

async function listen(server: Server): Promise<string> {
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  ends.push(async () => {
    server.closeAllConnections();
    server.close();
  });
  return `ws://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

/** Answers as `answer` says. */
async function server(
  answer: (frame: ClientFrame, socket: WebSocket) => void,
): Promise<{ url: string; heard: Collected<ClientFrame>; connections: Collected<WebSocket> }> {
  const http = createServer();
  const sockets = new WebSocketServer({ server: http });
  const [heard, connections] = [new Collected<ClientFrame>(), new Collected<WebSocket>()];
  sockets.on('connection', (socket) => {
    socket.on('message', (data) => {
      const frame = JSON.parse(data.toString()) as ClientFrame;
      heard.push(frame);
      answer(frame, socket);
    });
    connections.push(socket);
  });
  ends.push(async () => {
    for (const socket of sockets.clients) socket.terminate();
  });
  return { url: await listen(http), heard, connections };
}

function client(url: string, options: ConstructorParameters<typeof BusClient>[1]): BusClient {
  const bus = new BusClient(url, { ...QUICK, ...options });
  ends.push(() => bus.close());
  return bus;
}

/** The client may be gone first, which is no error here. */
function hangUp(socket: Duplex, status?: number): void {
  socket.on('error', () => {});
  if (status === undefined) socket.destroy();
  else socket.end(`HTTP/1.1 ${status} No\r\nconnection: close\r\ncontent-length: 0\r\n\r\n`);
}

test('a server that falls silent is asked, then given up, and another connection is made', async () => {
  const { url, heard, connections } = await server(() => {});
  client(url, { idleTimeoutMs: 60 });
  assert.deepEqual(await heard.count(1), [{ type: 'PING' }]);
  await connections.count(connections.all.length + 1);
});

/** Like a browser's: it cannot send a token with the upgrade. */
function withoutToken(...args: Parameters<typeof openNodeTransport>): Transport {
  return openNodeTransport(args[0], undefined, args[2]);
}

test('where the upgrade carries no token, AUTH does, before anything else', async () => {
  const { url, heard } = await server((frame, socket) => {
    const rid = 'rid' in frame ? frame.rid : undefined;
    if (frame.type === 'AUTH') socket.send(JSON.stringify({ type: 'OK', op: 'AUTH', rid }));
    if (frame.type === 'PUBLISH')
      socket.send(
        JSON.stringify({
          type: 'PUBLISHED',
          topic: 't',
          partition: 0,
          offset: 1,
          id: frame.id,
          durability: 'fsync',
          rid,
        }),
      );
  });
  const bus = client(url, { token: 'secret', openTransport: withoutToken });
  const publishing = bus.publish('t', 1);
  bus.subscribe({ topic: 't', group: 'g' }, () => {});
  await publishing;
  assert.deepEqual(
    heard.all.map(({ type }) => type),
    ['AUTH', 'SUBSCRIBE', 'PUBLISH'],
  );
  assert.equal((heard.all[0] as { token: string }).token, 'secret');
});

test('a token that is refused ends the client', async () => {
  const { url, connections } = await server((frame, socket) => {
    socket.send(
      JSON.stringify({
        type: 'ERROR',
        code: 'unauthorized',
        message: 'no',
        rid: 'rid' in frame ? frame.rid : undefined,
      }),
    );
  });
  const bus = client(url, { token: 'wrong', openTransport: withoutToken });
  await assert.rejects(bus.publish('t', 1), (error: BusError) => error.code === 'unauthorized');
  await assert.rejects(bus.connected(), (error: BusError) => error.code === 'unauthorized');
  assert.equal(connections.all.length, 1);
});

test('on Node the token goes with the upgrade', async () => {
  const seen = new Collected<string | undefined>();
  const url = await listen(
    createServer().on('upgrade', (request, socket) => {
      seen.push(request.headers.authorization);
      hangUp(socket);
    }),
  );
  client(url, { token: 'secret' });
  assert.equal((await seen.count(1))[0], 'Bearer secret');
});

for (const status of [401, 403, 404]) {
  test(`an upgrade refused with ${status} is not tried again`, async () => {
    const attempts = new Collected<void>();
    const url = await listen(
      createServer().on('upgrade', (_request, socket) => {
        attempts.push();
        hangUp(socket, status);
      }),
    );
    const bus = client(url, {});
    await assert.rejects(
      bus.publish('t', 1),
      (error: BusError & { status?: number }) => error.code === 'rejected' && error.status === status,
    );
    assert.equal(attempts.all.length, 1);
    assert.equal(bus.state, 'closed');
  });
}

test('an upgrade refused with 503 is tried again', async () => {
  const attempts = new Collected<void>();
  const url = await listen(
    createServer().on('upgrade', (_request, socket) => {
      attempts.push();
      hangUp(socket, 503);
    }),
  );
  client(url, {});
  await attempts.count(3);
});

test('frames nobody knows are passed over', async () => {
  const { url } = await server((frame, socket) => {
    for (const odd of ['', '{', 'null', '7', '{"type":"NEWER"}', '{"type":"PUBLISHED","rid":99}']) socket.send(odd);
    socket.send(JSON.stringify({ type: 'PONG', rid: 'rid' in frame ? frame.rid : undefined }));
  });
  const bus = client(url, {});
  await bus.connected();
  await bus.ping();
});
