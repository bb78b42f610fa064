// The client against a real server that asks for tokens, in plain text and over TLS.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { after, before, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';

import { BusClient, type BusClientOptions, type BusError, OsClient, type Transport } from '../src/index.js';
import { openNodeTransport } from '../src/node-transport.js';
import { Broker } from './broker.js';
import { QUICK } from './fixture.js';
import { Secrets } from './secure.js';

const secrets = new Secrets();
const ends: (() => unknown)[] = [() => secrets.remove()];
let plain: Broker;
let tls: Broker;

before(async () => {
  plain = await Broker.start('--config', secrets.config);
  ends.push(() => plain.remove());
  tls = await Broker.start('--config', secrets.config, ...secrets.tls());
  ends.push(() => tls.remove());
});
after(async () => {
  for (const end of ends.reverse()) await end();
});

/** Like a browser's: it cannot send a token with the upgrade, so AUTH has to carry it. */
function byFrame(...[url, , events]: Parameters<typeof openNodeTransport>): Transport {
  return openNodeTransport(url, undefined, events);
}

async function withClient(options: BusClientOptions, work: (bus: BusClient) => Promise<void>): Promise<void> {
  const bus = new BusClient(plain.ws, { ...QUICK, ...options });
  try {
    await work(bus);
  } finally {
    await bus.close();
  }
}

for (const [way, options] of [
  ['with the upgrade', {}],
  ['by AUTH', { openTransport: byFrame }],
] as const) {
  test(`a token ${way} lets the client publish, subscribe and ack`, async () => {
    await withClient({ token: 'worker-secret', ...options }, async (bus) => {
      const topic = way === 'by AUTH' ? 'frames' : 'headers';
      const received = new Promise((resolve) => {
        bus.subscribe({ topic, group: 'g', from: { kind: 'earliest' } }, (message) => {
          bus.ack(message);
          resolve(message.envelope.payload);
        });
      });
      const { offset } = await bus.publish(topic, { way });
      assert.equal(offset, 1);
      assert.deepEqual(await received, { way });
    });
  });

  test(`what the token ${way} is not good for is forbidden, and the client goes on`, async () => {
    await withClient({ token: 'reader-secret', ...options }, async (bus) => {
      await assert.rejects(bus.publish('t', 1), (error: BusError) => error.code === 'forbidden');
      await bus.subscribe({ topic: 't', group: 'g' }, () => {}).ready;
    });
  });

  test(`a wrong token ${way} ends the client`, async () => {
    await withClient({ token: 'wrong', ...options }, async (bus) => {
      const code = way === 'by AUTH' ? 'unauthorized' : 'rejected';
      await assert.rejects(bus.publish('t', 1), (error: BusError) => error.code === code);
      await assert.rejects(bus.connected(), (error: BusError) => error.code === code);
    });
  });
}

test('without a token every request is refused', async () => {
  await withClient({}, async (bus) => {
    await assert.rejects(bus.publish('t', 1), (error: BusError) => error.code === 'unauthorized');
    await assert.rejects(
      bus.subscribe({ topic: 't', group: 'g' }, () => {}).ready,
      (error: BusError) => error.code === 'unauthorized',
    );
  });
});

test('after a restart of the server the token is shown again', async () => {
  await withClient({ token: 'worker-secret', openTransport: byFrame }, async (bus) => {
    await bus.publish('again', 1);
    await plain.kill();
    const publishing = bus.publish('again', 2);
    await plain.restart();
    assert.equal((await publishing).offset, 2);
  });
});

test('topics are made with the token, by those who may', async () => {
  const config = { partitions: 2, subscribeACL: ['root'] };
  await withClient({ token: 'worker-secret' }, async (bus) => {
    await assert.rejects(bus.registerTopic('made', config), (error: BusError) => error.code === 'forbidden');
  });
  await withClient({ token: 'root-secret' }, async (bus) => {
    assert.equal((await bus.registerTopic('made', config)).partitions, 2);
  });
  await withClient({ token: 'worker-secret' }, async (bus) => {
    const { ready } = bus.subscribe({ topic: 'made', group: 'g' }, () => {});
    await assert.rejects(ready, (error: BusError) => error.code === 'forbidden');
  });
});

interface Outcome {
  received?: { way: string };
  code?: string;
  message?: string;
}

async function run(token: string, way: string, env: NodeJS.ProcessEnv): Promise<Outcome> {
  const program = fileURLToPath(new URL('./secure-program.js', import.meta.url));
  const { NODE_EXTRA_CA_CERTS: _, ...rest } = process.env;
  const ran = await promisify(execFile)(process.execPath, [program, tls.ws, token, way], { env: { ...rest, ...env } });
  return JSON.parse(ran.stdout) as Outcome;
}

for (const way of ['node', 'browser']) {
  test(`over TLS a client that trusts the authority comes in, like on ${way}`, async () => {
    assert.match(tls.ws, /^wss:/);
    const outcome = await run('worker-secret', way, { NODE_EXTRA_CA_CERTS: secrets.authority });
    assert.deepEqual(outcome, { received: { way } });
  });
}

test('over TLS a client that does not know the authority sends nothing', async () => {
  const outcome = await run('worker-secret', 'node', {});
  assert.equal(outcome.code, 'unreachable');
  assert.match(outcome.message ?? '', /certificate|self[- ]signed|unable to verify/i);
});

test('over TLS a wrong token is refused', async () => {
  const outcome = await run('wrong', 'node', { NODE_EXTRA_CA_CERTS: secrets.authority });
  assert.equal(outcome.code, 'rejected');
});

test('a client certificate stands for its agent, over the socket, HTTP and the loop', async () => {
  const own = new Secrets();
  ends.push(() => own.remove());
  const flags = [...own.tls(), ...own.clientCertificates()];
  const broker = await Broker.start('--config', own.config, ...flags);
  ends.push(() => broker.remove());
  const bus = new BusClient(broker.ws, { ...QUICK, tls: own.billing });
  try {
    assert.equal((await bus.registerTopic('made', { publishACL: ['billing'] })).topic, 'made');
    assert.equal((await bus.publish('made', 1)).offset, 1);
  } finally {
    await bus.close();
  }
  const os = await OsClient.connect(broker.ws, { tls: own.billing });
  assert.deepEqual(await os.query('Syscall.Ping', { a: 1 }), { a: 1 });
  await os.close();
  // Trusting the authority is not enough: without certificate or token nobody is anybody.
  const { ca } = own.billing;
  const nobody = new BusClient(broker.ws, { ...QUICK, tls: ca === undefined ? {} : { ca } });
  await assert.rejects(nobody.publish('made', 2), (error: BusError) => error.code === 'unauthorized');
  await nobody.close();
});
