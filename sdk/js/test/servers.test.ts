// Several servers that share a store: which one the client uses, and where its token may go.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, test } from 'node:test';

import { Endpoint } from '../src/endpoint.js';
import { BadUrl, BusClient, type BusClientOptions, type BusError, type FollowLeader } from '../src/index.js';
import { openNodeTransport } from '../src/node-transport.js';
import { Outage } from '../src/outage.js';
import { ServerRound } from '../src/round.js';
import { ServerList } from '../src/servers.js';
import { Collected } from './collected.js';
import { QUICK } from './fixture.js';
import { Follower, type Leader } from './follower.js';
import { Secrets } from './secure.js';

/** Nobody listens there. */
const NOBODY = 'ws://127.0.0.1:9/';
const TOKEN = { token: 'secret' };

const ends: (() => unknown)[] = [];
afterEach(async () => {
  for (const end of ends.splice(0).reverse()) await end();
});

async function server(leader?: Leader, tls?: { cert: string; key: string }): Promise<Follower> {
  const started = await Follower.start(leader, tls);
  ends.push(() => started.end());
  return started;
}

function client(urls: string | string[], options: BusClientOptions = {}): BusClient {
  const bus = new BusClient(urls, { ...QUICK, onError: () => {}, ...options });
  ends.push(() => bus.close());
  return bus;
}

const urlsOf = (...servers: Follower[]): string[] => servers.map(({ url }) => url);

test('lists are arrays or have commas', () => {
  const shown = (urls: string | string[]): string[] =>
    new ServerList(urls, { hasToken: false, namespace: 'n' }).endpoints.map(({ ws }) => ws);
  assert.deepEqual(shown('ws://a:1, ws://b/ws'), ['ws://a:1/?namespace=n', 'ws://b:7070/ws?namespace=n']);
  assert.deepEqual(shown(['wss://a', 'https://b:1,wss://c']).length, 3);
  const many = Array.from({ length: 65 }, () => 'ws://a');
  for (const bad of ['', 'ws://a,', 'ws://a,b', 'ws://a,wss://b', [], many]) {
    assert.throws(
      () => new ServerList(bad, { hasToken: false }),
      (error) => error instanceof BadUrl,
      String(bad),
    );
  }
});

test('a leader is followed only where the token may go', () => {
  const cases: [urls: string, follow: FollowLeader, hasToken: boolean, named: string, wanted: string | RegExp][] = [
    // In the list: by host and port, under the URL of the list.
    ['ws://a:1,ws://b:2/ws', 'auto', true, 'ws://B:2/', 'ws://b:2/ws'],
    ['ws://a:1,ws://b:2/ws', 'listed', true, 'http://b:2', 'ws://b:2/ws'],
    ['wss://a:1,wss://b:2', 'auto', true, 'ws://b:2/', 'wss://b:2/'],
    // Not in the list, without TLS.
    ['ws://a:1', 'auto', false, 'ws://c:3/', 'ws://c:3/'],
    ['ws://a:1', 'auto', true, 'ws://c:3/', /token/],
    ['ws://a:1', 'auto', true, 'wss://c:3/', /token/],
    ['ws://a:1', 'auto', true, 'ws://a:2/', /token/],
    ['ws://a:1', 'always', true, 'ws://c:3/', 'ws://c:3/'],
    ['ws://a:1', 'listed', false, 'ws://c:3/', /only those/],
    // Not in the list, with TLS.
    ['wss://a:1', 'auto', true, 'wss://c:3/', 'wss://c:3/'],
    ['wss://a:1', 'auto', false, 'ws://c:3/', /no TLS/],
    ['wss://a:1', 'always', false, 'ws://c:3/', /no TLS/],
    ['wss://a:1', 'listed', false, 'wss://c:3/', /only those/],
    // No URL of a server.
    ['ws://a:1', 'always', false, '', /no URL/],
    ['ws://a:1', 'always', false, 'service restart', /no URL/],
    ['ws://a:1', 'always', false, 'file:///etc/passwd', /no URL/],
    ['ws://a:1', 'always', false, 'javascript://a/%0aalert(1)', /no URL/],
    ['ws://a:1', 'always', false, 'ws://c:3/?token=1', /no URL/],
    ['ws://a:1', 'always', false, `ws://${'a'.repeat(1024)}/`, /no URL/],
  ];
  for (const [urls, followLeader, hasToken, named, wanted] of cases) {
    const list = new ServerList(urls, { followLeader, hasToken });
    const found = list.leader(named, list.endpoints[0] as Endpoint);
    const text = typeof found === 'string' ? found : found.ws;
    if (typeof wanted === 'string') assert.equal(text, wanted, `${urls} ${followLeader} ${hasToken} ${named}`);
    else assert.match(text, wanted, `${urls} ${followLeader} ${hasToken} ${named}`);
  }
});

test('a round has every server once, named leaders first, and few outside the list', () => {
  const rest = (round: ServerRound): string => {
    const hosts: string[] = [];
    for (let next = round.next(); next; next = round.next()) hosts.push(new URL(next.ws).hostname);
    return hosts.join(' ');
  };
  const repeated = new ServerList('ws://a:1,ws://b:1,ws://a:1', { hasToken: false });
  assert.equal(rest(new ServerRound(repeated)), 'a b');
  const list = new ServerList('ws://a:1,ws://b:1,ws://c:1', { hasToken: false });
  const round = new ServerRound(list);
  assert.equal(rest(round), 'a b c');
  round.restart();
  assert.ok(round.startWith(new Endpoint('ws://c:1')));
  assert.equal(rest(round), 'c a b');
  assert.equal(round.startWith(new Endpoint('ws://a:1')), false);
  assert.equal(rest(ServerRound.after(list, new Endpoint('ws://c:1'))), 'a b');
  round.restart();
  for (const n of [1, 2, 3, 4]) {
    assert.ok(round.startWith(new Endpoint(`ws://x${n}:1`)));
    round.next();
  }
  assert.equal(round.startWith(new Endpoint('ws://x5:1')), false);
  assert.equal(rest(round), 'c a b');
});

test('all servers are tried before each wait, and the wait for a leader does not grow', () => {
  const list = new ServerList('ws://a:1,ws://b:1', { hasToken: false });
  const outage = new Outage(list, { random: () => 0 }, Infinity);
  const step = (): [string, number | undefined] => {
    const next = outage.next();
    if ('error' in next) throw next.error;
    return [new URL(next.endpoint.ws).hostname, next.delayMs];
  };
  const [a, b] = list.endpoints as [Endpoint, Endpoint];
  const gone = { reason: 'gone', oversize: false };
  assert.deepEqual(step(), ['a', undefined]);
  outage.failed(a, gone);
  assert.deepEqual(step(), ['b', undefined]);
  outage.failed(b, gone);
  assert.deepEqual(step(), ['a', 1_000]);
  outage.failed(a, gone);
  step();
  assert.deepEqual(step(), ['a', 2_000]);
  outage.moved(a, 'no leader', undefined);
  step();
  assert.deepEqual(step(), ['a', 1_000]);
  // A server that accepts and closes at once is not tried again without a wait.
  outage.closed(a, 'closed');
  assert.deepEqual(step(), ['b', undefined]);
  outage.closed(b, 'closed');
  assert.deepEqual(step(), ['a', 8_000]);
  outage.lost(a, gone);
  assert.deepEqual([step(), step()], [
    ['b', undefined],
    ['a', 1_000],
  ]);
});

test('a server that is not there is passed over', async () => {
  const second = await server();
  const bus = client(`${NOBODY},${second.url}`);
  await bus.publish('t', 1);
  assert.equal(bus.url, second.url);
});

test('when no server is there each is named', async () => {
  const bus = client([NOBODY, 'ws://127.0.0.1:10/'], { giveUpAfterMs: 0 });
  await assert.rejects(bus.publish('t', 1), {
    code: 'unreachable',
    message: /any of 2 servers: ws:\/\/127\.0\.0\.1:9\/: .*; ws:\/\/127\.0\.0\.1:10\/: /,
  });
});

test('what each server fails with is told once, however often the list is gone through', async () => {
  const errors = new Collected<BusError>();
  const states = new Collected<string>();
  const onState = (state: string): void => states.push(state);
  client([NOBODY, 'ws://127.0.0.1:10/'], { onError: (error) => errors.push(error), onState });
  await states.until((all) => all.filter((state) => state === 'waiting').length === 3);
  assert.equal(errors.all.length, 2);
});

test('when the lead moves every unconfirmed publish reaches the new leader under its id', async () => {
  const [old, idle, next] = [await server(), await server(), await server()];
  const errors = new Collected<BusError>();
  const bus = client(urlsOf(old, idle, next), { onError: (error) => errors.push(error) });
  await bus.subscribe({ topic: 't', group: 'g' }, () => {}).ready;
  const confirmed = await Promise.all([1, 2, 3].map((n) => bus.publish('t', n)));
  old.confirms = false;
  const pending = Array.from({ length: 100 }, (_, n) => bus.publish('t', 4 + n));
  await old.heard.until((all) => all.length >= 50);
  old.move(next.url);
  const receipts = await Promise.all(pending);
  assert.equal(bus.url, next.url);
  assert.equal(next.heard.all[0]?.type, 'SUBSCRIBE');
  assert.deepEqual(
    next.publishes.map(({ payload }) => payload),
    Array.from({ length: 100 }, (_, n) => 4 + n),
  );
  assert.deepEqual(
    next.publishes.map(({ id }) => id),
    receipts.map(({ id }) => id),
  );
  const sentBefore = new Map(old.publishes.map(({ payload, id }) => [payload, id]));
  for (const { payload, id } of next.publishes) assert.equal(sentBefore.get(payload) ?? id, id);
  const ids = new Set([...confirmed, ...receipts].map(({ id }) => id));
  assert.equal(ids.size, 103);
  assert.equal(idle.connections.all.length, 0, 'the leader was named, no other server is asked');
  assert.deepEqual(errors.all, [], 'a leader that is followed is no error');
});

test('a close with 1012 is enough', async () => {
  const [old, next] = [await server(), await server()];
  const bus = client(urlsOf(old, next));
  await bus.publish('t', 1);
  old.tells = false;
  old.move(next.url);
  await bus.publish('t', 2);
  assert.equal(bus.url, next.url);
});

test('without a leader all servers are asked until one leads', async () => {
  const [first, second] = [await server(null), await server(null)];
  const errors = new Collected<BusError>();
  const bus = client(urlsOf(first, second), { onError: (error) => errors.push(error) });
  const publishing = bus.publish('t', 1);
  await Promise.all([first.connections.count(3), second.connections.count(3)]);
  second.leader = undefined;
  await publishing;
  assert.equal(bus.url, second.url);
  assert.deepEqual(
    errors.all.map(({ code }) => code),
    ['connection_lost', 'connection_lost'],
    'each server is told of once',
  );
});

test('servers that accept the token and do not lead are not asked without a wait', async () => {
  const [first, second] = [await server(null), await server(null)];
  first.authenticates = second.authenticates = true;
  const states = new Collected<string>();
  const bus = client(urlsOf(first, second), {
    ...TOKEN,
    openTransport: (url, _token, events) => openNodeTransport(url, undefined, events),
    onState: (state) => states.push(state),
  });
  const publishing = bus.publish('t', 1);
  await states.until((all) => all.filter((state) => state === 'waiting').length === 3);
  assert.ok(first.connections.all.length + second.connections.all.length <= 6);
  first.leader = undefined;
  await publishing;
  assert.equal(bus.url, first.url);
});

test('a search without a leader ends when it has lasted too long', async () => {
  const follower = await server(null);
  const bus = client(follower.url, { giveUpAfterMs: 0 });
  await assert.rejects(bus.publish('t', 1), { code: 'unreachable', message: /does not lead/ });
});

test('servers that name each other are asked in turn', async () => {
  const [first, second] = [await server(null), await server(null)];
  [first.leader, second.leader] = [second.url, first.url];
  const bus = client(first.url);
  const publishing = bus.publish('t', 1);
  await second.connections.count(3);
  second.leader = undefined;
  await publishing;
  assert.equal(bus.url, second.url);
});

test('a leader that is no URL is passed over', async () => {
  const second = await server();
  const long = `ws://${'a'.repeat(5000)}/`;
  for (const leader of ['', 'nonsense', 'file:///etc/passwd', 'ws://', 'ws://a b/', long]) {
    const bus = client(urlsOf(await server(leader), second));
    await bus.publish('t', 1);
    assert.equal(bus.url, second.url);
  }
});

test('without a token a leader outside the list is followed, and the list is where the client comes back to', async () => {
  const leader = await server();
  const listed = await server(leader.url);
  const bus = client(listed.url);
  await bus.publish('t', 1);
  assert.equal(bus.url, leader.url);
  listed.leader = undefined;
  leader.move(null);
  await bus.publish('t', 2);
  assert.equal(bus.url, listed.url);
});

for (const [way, options, wanted] of [
  ['with the upgrade', {}, 'Bearer secret'],
  ['by AUTH', { openTransport: (url, _token, events) => openNodeTransport(url, undefined, events) }, undefined],
] as [string, BusClientOptions, string | undefined][]) {
  test(`a token that is sent ${way} goes only to servers of the list`, async () => {
    const other = await server();
    const [first, second] = [await server(other.url), await server()];
    const bus = client(urlsOf(first, second), { ...TOKEN, ...options });
    await bus.publish('t', 1);
    assert.equal(bus.url, second.url);
    assert.equal(second.authorizations.all[0], wanted);
    assert.deepEqual([other.authorizations.all, other.heard.all], [[], []]);
    await client(first.url, { ...TOKEN, ...options, followLeader: 'always' }).publish('t', 1);
    assert.equal(other.authorizations.all[0], wanted);
  });
}

test('from TLS only a leader with TLS is followed', async () => {
  const secrets = new Secrets();
  ends.push(() => secrets.remove());
  secrets.tls();
  const file = (name: string): string => readFileSync(join(secrets.folder, name), 'utf8');
  const tls = { cert: file('cert.pem'), key: file('key.pem') };
  const [plain, secure] = [await server(), await server(undefined, tls)];
  const listed = await server(plain.url, tls);
  const bus = client(listed.url, { ...TOKEN, tls: { ca: file('ca.pem') }, followLeader: 'always' });
  const publishing = bus.publish('t', 1);
  await listed.connections.count(2);
  assert.equal(plain.connections.all.length, 0);
  listed.leader = secure.url;
  await publishing;
  assert.equal(bus.url, secure.url);
  assert.equal(secure.authorizations.all[0], 'Bearer secret');
});

test('topics are made at the leader', async () => {
  const leader = await server();
  const bus = client([NOBODY, (await server(leader.url)).url]);
  assert.deepEqual(await bus.registerTopic('made'), { topic: 'made' });
  const other = await server();
  const listed = await server(other.url);
  const withToken = client(listed.url, { ...TOKEN, giveUpAfterMs: 0 });
  await assert.rejects(withToken.registerTopic('made'), { code: 'moved' });
  assert.deepEqual(other.authorizations.all, []);
});
