// The pages about the server itself: capabilities, connections, settings, the log; and a token that only inspects.

import assert from 'node:assert/strict';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { after, before, test } from 'node:test';

import { Browser, Server } from './support.mjs';

const ECHO = `import json, sys
print(json.dumps({"name": "Echo", "description": "Says it again", "inbound": [
    {"kind": "query", "type": "Echo.Say", "description": "Says it", "data": {"type": "object", "required": ["text"],
     "properties": {"text": {"type": "string", "description": "What to say"}, "times": {"type": "integer"}}}}]}), flush=True)
for line in sys.stdin:
    message = json.loads(line)
    if message["data"].get("text") == "die":
        sys.exit(3)
    sys.stdout.write('{"kind":"reply","type":"Echo.Say","data":{"said":' + json.dumps(message["data"]["text"])
        + ',"big":12345678901234567890},"metadata":{"id":"' + message["metadata"]["id"] + '-r","timestamp":1,"causation":"'
        + message["metadata"]["id"] + '"}}\\n')
    sys.stdout.flush()
`;
const token = (secret, agent, scopes) => `[[auth.tokens]]\ntoken = "${secret}"\nagent = "${agent}"\nscopes = ${JSON.stringify(scopes)}\n`;
const EXPECTED = /Failed to load resource|ERR_CONNECTION/;

let browser;
before(async () => {
  browser = await Browser.start();
});
after(async () => browser?.end());

async function withEcho(tables = '') {
  const server = await Server.start();
  await server.end();
  await writeFile(join(server.folder, 'echo.py'), ECHO);
  await server.configure(`${tables}[[capability]]\nname = "Echo"\ncommand = ["python3", ${JSON.stringify(join(server.folder, 'echo.py'))}]\n`);
  server.flags = ['--capability-restarts-max', '0', '--audit', 'refusals,admin'];
  await server.begin();
  return server;
}

test('a message is tried from its schema, and an unhealthy capability says why', async () => {
  const server = await withEcho();
  const { page, end } = await browser.open(`${server.http}/console/#/capabilities`);
  await page.getByRole('button', { name: 'Echo', exact: true }).click();
  const drawer = page.getByRole('complementary', { name: 'Echo' });
  await drawer.getByText('Says it again').waitFor();
  assert.match(page.url(), /c=Echo/, 'the address is the state');
  await drawer.getByRole('button', { name: 'Try it…' }).click();
  const form = page.getByRole('dialog');
  await form.getByLabel('times (may be left out)').waitFor();
  await form.getByLabel('text', { exact: true }).fill('hello');
  await form.getByRole('button', { name: 'Send' }).click();
  await form.getByText('12345678901234567890').waitFor();
  await form.getByLabel('text', { exact: true }).fill('die');
  await form.getByRole('button', { name: 'Send' }).click();
  await form.getByText('The outcome is an error').waitFor();
  await form.getByRole('button', { name: 'Close' }).click();
  await page.keyboard.press('Escape');
  await page.getByRole('heading', { name: 'Unhealthy' }).waitFor();
  await page.getByText('it was started again').waitFor();
  await page.getByRole('button', { name: 'Reload…' }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Reload' }).click();
  await page.locator('.toast', { hasText: 'replaced: Echo' }).waitFor();
  await page.getByRole('heading', { name: 'Unhealthy' }).waitFor({ state: 'hidden' });
  await end();
  await server.remove();
});

test('a connection is seen, disconnected, and that is written down', async () => {
  const server = await withEcho();
  await server.publish('t', { payload: 1 });
  const worker = await server.worker('t', 'g', () => null);
  let gone;
  const closed = new Promise((resolve) => (gone = resolve));
  worker.on('close', (code) => gone(code));
  const { page, end } = await browser.open(`${server.http}/console/#/access`);
  const row = page.getByRole('row', { name: /ws-/ });
  await row.getByRole('cell', { name: 'the bus, default' }).waitFor();
  await row.getByRole('button', { name: /Disconnect/ }).click();
  await page.getByText('holds 1 events').waitFor();
  await page.getByRole('button', { name: 'Disconnect', exact: true }).click();
  assert.equal(await closed, 1013);
  await page.getByText('Nobody is connected').waitFor();
  await page.getByRole('cell', { name: 'disconnected' }).waitFor();
  await end();
  await server.remove();
});

test('settings are found by name and source, and warnings of the log are shown', async () => {
  const server = await withEcho(token('root-secret', 'root', ['admin']));
  await fetch(`${server.http}/topics`, { headers: { authorization: 'Bearer wrong' } });
  const { page, end } = await browser.open(`${server.http}/console/#/settings`, { may: EXPECTED });
  await page.getByLabel('Token', { exact: true }).fill('root-secret');
  await page.getByRole('button', { name: 'Sign in' }).click();
  const search = page.getByRole('searchbox', { name: 'Find a setting' });
  await search.fill('audit');
  await page.getByRole('cell', { name: 'refusals, admin', exact: true }).waitFor();
  await page.getByRole('row', { name: /root a token admin default/ }).waitFor();
  await page.getByRole('link', { name: 'Echo' }).waitFor();
  assert.ok(!(await page.content()).includes('root-secret'));
  await page.getByLabel('Only those that are set').check();
  await page.getByRole('cell', { name: 'audit-records-max' }).waitFor({ state: 'detached' });
  assert.match(page.url(), /q=audit/);
  await page.keyboard.press('Escape');
  await page.goto(`${server.http}/console/#/server`);
  await page.getByText('code=unauthorized').first().waitFor();
  await page.getByText('Time of a commit').waitFor();
  await end();
  await server.remove();
});

test('pages that a token may not see say so, and ask for nothing', async () => {
  const server = await Server.start({ config: token('pub-secret', 'publisher', ['publish', 'subscribe']) });
  const refused = [];
  const respond = (response) => response.status() === 403 && refused.push(response.url());
  const { page, end } = await browser.open(`${server.http}/console/`, { may: EXPECTED, respond });
  await page.getByLabel('Token', { exact: true }).fill('pub-secret');
  await page.getByRole('button', { name: 'Sign in' }).click();
  await page.getByText('there are no figures here').waitFor();
  await page.getByRole('link', { name: 'Capabilities' }).click();
  await page.getByText('neither the scope os nor inspect').waitFor();
  assert.deepEqual(refused, []);
  await end();
  await server.remove();
});

test('a token that inspects sees no content, and what it may not do is disabled with the reason', async () => {
  const config = token('root-secret', 'root', ['admin']) + token('look-secret', 'looker', ['inspect']);
  const server = await withEcho(config);
  await server.publish('t', { payload: { name: 'canary-77' }, key: 'canary-77', headers: { who: 'canary-77' } }, 'root-secret');
  const { page, end } = await browser.open(`${server.http}/console/#/topics`, { may: EXPECTED });
  await page.getByLabel('Token', { exact: true }).fill('look-secret');
  await page.getByRole('button', { name: 'Sign in' }).click();
  await page.getByRole('link', { name: 't', exact: true }).waitFor();
  await page.goto(`${server.http}/console/#/topics/t?e=0:1`);
  await page.getByText('How far everybody is').waitFor();
  await page.getByText('withheld').first().waitFor();
  assert.ok(!(await page.content()).includes('canary-77'));
  await page.goto(`${server.http}/console/#/capabilities`);
  const reload = page.getByRole('button', { name: 'Reload…' });
  await page.getByRole('button', { name: 'Echo', exact: true }).waitFor();
  assert.ok(await reload.isDisabled());
  assert.match((await reload.getAttribute('title')) ?? '', /no scope admin/);
  for (const name of ['access', 'settings']) {
    await page.goto(`${server.http}/console/#/${name}`);
    await page.getByText('your token has no scope admin').waitFor();
  }
  await page.goto(`${server.http}/console/#/server`);
  await page.getByText('Time of a commit').waitFor();
  await page.getByText('The log: your token has no scope admin.').waitFor();
  await end();
  await server.remove();
});
