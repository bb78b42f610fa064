// What goes wrong: the server goes away, a token ends, payloads are hostile.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { Browser, Server } from './support.mjs';

let browser;
before(async () => {
  browser = await Browser.start();
});
after(async () => browser?.end());

/** The browser itself reports requests that fail; the page must cope. */
const AWAY = /Failed to load resource|ERR_CONNECTION/;

test('the page waits for a server that is away, and goes on', async () => {
  const server = await Server.start();
  await server.publish('t', { payload: 1 });
  const { page, end } = await browser.open(`${server.http}/console/#/topics`, { may: AWAY });
  await page.getByRole('link', { name: 't', exact: true }).waitFor();
  await server.end('SIGKILL');
  await page.getByText('server away').waitFor();
  await server.begin();
  await page.getByText('connected').waitFor();
  await server.publish('after', { payload: 1 });
  await page.getByRole('link', { name: 'after', exact: true }).waitFor();
  await end();
  await server.remove();
});

const TOKENS = `[[auth.tokens]]
token = "one-secret"
agent = "ada"
scopes = ["subscribe", "metrics"]
`;

test('a token is asked for, and again when it ends; what it does not allow is disabled', async () => {
  const server = await Server.start({ config: TOKENS + TOKENS.replace('one-secret', 'root-secret').replace('ada', 'root').replace('"subscribe", "metrics"', '"admin"') });
  await server.publish('t', { payload: 1 }, 'root-secret');
  const { page, end } = await browser.open(`${server.http}/console/#/topics`, { may: AWAY });
  const token = page.getByLabel('Token', { exact: true });
  await token.fill('wrong');
  await page.getByRole('button', { name: 'Sign in' }).click();
  await page.getByText('does not accept this token').waitFor();
  await token.fill('one-secret');
  await page.getByRole('button', { name: 'Sign in' }).click();
  await page.getByRole('link', { name: 't', exact: true }).waitFor();
  const create = page.getByRole('button', { name: 'Create topic' });
  assert.ok(await create.isDisabled());
  assert.match((await create.getAttribute('title')) ?? '', /no scope admin/);
  assert.ok(!page.url().includes('secret'), 'nothing secret is in an address');

  await server.configure(TOKENS.replace('one-secret', 'new-secret'));
  server.child.kill('SIGHUP');
  await page.getByRole('heading', { name: 'This server wants a token' }).waitFor();
  await token.fill('new-secret');
  await page.getByRole('button', { name: 'Sign in' }).click();
  await page.getByRole('link', { name: 't', exact: true }).waitFor();
  await end();
  await server.remove();
});

const HOSTILE = [
  ['markup', '{"x":"<img src=x onerror=alert(1)><script>alert(2)</script>"}', 'onerror=alert(1)'],
  ['a large text', JSON.stringify({ text: 'ä'.repeat(450_000) }), 'Show all'],
  ['depth', `${'['.repeat(120)}7${']'.repeat(120)}`, '1 element'],
  ['lone surrogates', '{"s":"\\ud800 and \\udfff"}', '"\\ud800 and \\udfff"'],
  ['many digits', '{"n":12345678901234567890.12345678901234567890,"e":1e400}', '12345678901234567890.12345678901234567890'],
  ['prototype', '{"__proto__":{"polluted":true},"constructor":1}', '"__proto__"'],
  ['many members', JSON.stringify(Object.fromEntries(Array.from({ length: 1000 }, (_, n) => [`m${n}`, n]))), '800 more'],
];

test('hostile payloads are shown as they are', async () => {
  const server = await Server.start();
  for (const [, payload] of HOSTILE) {
    await server.publish('hostile', `{"key":"<b>k</b>","headers":{"<i>":"<u>"},"payload":${payload}}`);
  }
  const { page, end } = await browser.open(`${server.http}/console/#/topics/hostile`);
  await page.getByText(`${HOSTILE.length} events.`).waitFor();
  for (const [at, [name, , shown]] of HOSTILE.entries()) {
    await page.goto(`${server.http}/console/#/topics/hostile?e=0:${at + 1}`);
    const drawer = page.getByRole('complementary', { name: new RegExp(`/${at + 1}$`) });
    await drawer.getByText(shown).first().waitFor();
    await drawer.getByText('<b>k</b>').waitFor();
    assert.equal(await page.locator('img, main script, aside script').count(), 0, name);
    await drawer.getByText('No group and no handler').waitFor();
  }
  assert.equal(await page.evaluate('({}).polluted'), undefined);
  await end();
  await server.remove();
});
