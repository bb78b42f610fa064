// The client of the loop against the real server, by each way there is.

import assert from 'node:assert/strict';
import { after, afterEach, before, test } from 'node:test';

import { ConnectionLost, OsClient, type OsClientOptions, OsError, Rejected, type Transport } from '../src/index.js';
import { openNodeTransport } from '../src/node-transport.js';
import { Broker } from './broker.js';
import { Secrets } from './secure.js';

const secrets = new Secrets();
let broker: Broker;
let guarded: Broker;
const clients: OsClient[] = [];

before(async () => {
  broker = await Broker.start();
  guarded = await Broker.start('--config', secrets.config, '--require-auth');
});
afterEach(async () => {
  await Promise.all(clients.splice(0).map((client) => client.close()));
});
after(async () => {
  await broker?.remove();
  await guarded?.remove();
  secrets.remove();
});

/** Like a browser's: it cannot send a token with the upgrade, so a message has to carry it. */
function byMessage(...[url, , events]: Parameters<typeof openNodeTransport>): Transport {
  return openNodeTransport(url, undefined, events);
}

test('a token opens a guarded loop by every way, and nothing else does', async () => {
  const ways: [string, OsClientOptions][] = [
    [guarded.socket, {}],
    [guarded.ws, {}],
    [guarded.ws, { openTransport: byMessage }],
  ];
  for (const [address, options] of ways) {
    const os = await OsClient.connect(address, { ...options, token: 'asker-secret' });
    assert.deepEqual(await os.query('Syscall.Ping', { payload: 1 }), { payload: 1 });
    await os.close();
    const asked = OsClient.connect(address, { ...options, token: 'wrong' }).then((os) => os.query('Syscall.Ping'));
    const error = await asked.then(() => undefined, (error: unknown) => error);
    const code = error instanceof Rejected ? error.status : error instanceof OsError ? error.code : error;
    assert.equal(code, 401);
  }
});

for (const way of ['unix', 'ws'] as const) {
  const connect = async (options: OsClientOptions = {}): Promise<OsClient> => {
    const client = await OsClient.connect(way === 'unix' ? broker.socket : broker.ws, options);
    clients.push(client);
    return client;
  };

  test(`${way}: what is sent to Ping comes back`, async () => {
    const os = await connect();
    const payload = { text: 'müll 🦆 \u2028', list: [1, -0.5, null, true], deep: { a: { b: {} } } };
    assert.deepEqual(await os.query('Syscall.Ping', { payload }), { payload });
  });

  test(`${way}: many requests are under way at once`, async () => {
    const os = await connect();
    const numbers = Array.from({ length: 1_000 }, (_, n) => n);
    const ping = (payload: number) => os.query('Syscall.Ping', { payload });
    const replies = await Promise.all(numbers.map(ping));
    assert.deepEqual(
      replies,
      numbers.map((payload) => ({ payload })),
    );
  });

  test(`${way}: what one client sets another gets`, async () => {
    const [one, two] = [await connect(), await connect()];
    await one.command('Memory.Set', { key: `/${way}`, value: { ducks: 3 } }, { correlation: 'c' });
    assert.deepEqual(await two.query('Memory.Get', { key: `/${way}` }), { ducks: 3 });
  });

  test(`${way}: refusals have the codes and texts of the loop`, async () => {
    const os = await connect();
    const refused = async (asked: Promise<unknown>): Promise<[number, string]> => {
      const error = await asked.catch((error: unknown) => error);
      assert.ok(error instanceof OsError, String(error));
      return [error.code, error.message];
    };
    assert.deepEqual(await refused(os.query('Duck.Count')), [404, "Capability 'Duck.Count' not found in registry."]);
    const [kind] = await refused(os.command('Syscall.Ping', { payload: 1 }));
    assert.equal(kind, 404);
    const [schema, text] = await refused(os.command('Memory.Set', { key: 5 }));
    assert.equal(schema, 422);
    assert.match(text, /^Schema validation failed: /);
    const [type] = await refused(os.query('no type'));
    assert.equal(type, 422);
  });

  test(`${way}: an event is answered by nobody`, async () => {
    const told: Error[] = [];
    const os = await connect({ onError: (error) => told.push(error) });
    await os.emit('Duck.Seen', { pond: 7 });
    await os.query('Syscall.Ping', { payload: 1 });
    assert.deepEqual(told, []);
  });

  test(`${way}: close waits for what was asked`, async () => {
    const os = await connect();
    const asked = Promise.all([1, 2, 3].map((payload) => os.query('Syscall.Ping', { payload })));
    await os.close();
    assert.equal((await asked).length, 3);
  });

  test(`${way}: a killed server ends the client`, async () => {
    const lost: Error[] = [];
    const os = await connect({ onEnd: (error) => lost.push(error) });
    await os.query('Syscall.Ping', { payload: 1 });
    await broker.kill();
    await assert.rejects(os.query('Syscall.Ping', { payload: 2 }), (error) => error instanceof ConnectionLost);
    assert.equal(lost.length, 1);
    await broker.restart();
    const again = await connect();
    assert.deepEqual(await again.query('Memory.Get', { key: `/${way}` }), { ducks: 3 }, 'it was on disk');
  });
}
