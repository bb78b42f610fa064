// The work of durable handlers: what each holds, waits for and gave up on; schedules; what waits for its time.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { after, before, test } from 'node:test';

import WebSocket from 'ws';

import { Browser, Server } from './support.mjs';

let server;
let browser;
before(async () => {
  server = await Server.start();
  browser = await Browser.start();
});
after(async () => {
  await browser?.end();
  await server?.remove();
});

/** Sets a timer of the loop, as a client of it. */
async function setTimer() {
  const socket = new WebSocket(`${server.http.replace('http', 'ws')}/os`);
  await once(socket, 'open');
  const data = { delayMs: 3_600_000, message: { kind: 'event', type: 'Tea.Ready', data: {} } };
  const answered = once(socket, 'message');
  socket.send(JSON.stringify({ kind: 'command', type: 'Timer.Set', data, metadata: { id: 'set-1', timestamp: Date.now() } }));
  const [line] = await answered;
  assert.equal(JSON.parse(line).kind, 'reply', String(line));
  socket.close();
}

test('from empty pages to mended work', async () => {
  const { page, end } = await browser.open(`${server.http}/console/#/handlers`, { may: /404|409/ });
  const go = (to) => page.evaluate((hash) => (location.hash = hash), to);
  const toast = (text) => page.locator('.toast', { hasText: text }).waitFor();

  // Empty pages teach.
  await page.getByText('No handlers').waitFor();
  await page.getByText('millrace events handlers').waitFor();
  for (const [hash, text] of [['#/sessions', 'No sessions'], ['#/schedules', 'No schedules'], ['#/waiting', 'No delayed events']]) {
    await go(hash);
    await page.getByText(text).waitFor();
  }
  await page.getByText(`curl ${server.http}/topics/hello/events`).waitFor();
  await page.getByText('No timers').waitFor();

  // A handler that is not there is asked for once.
  let asked = 0;
  const count = (request) => (asked += request.url().includes('/handlers/nobody/') ? 1 : 0);
  page.on('request', count);
  await go('#/handlers/nobody');
  await page.getByText('There is no handler of this name').waitFor();
  await page.waitForRequest(/dead-letters/);
  assert.equal(asked, 1);
  page.off('request', count);

  // A program begins to work, and shows itself.
  const program = server.program();
  await page.keyboard.press('g');
  await page.keyboard.press('h');
  await page.getByRole('link', { name: 'shop:mail' }).click();
  await page.getByRole('heading', { name: 'shop:mail' }).waitFor();
  await page.getByRole('cell', { name: 'the mail server is away' }).first().waitFor();
  await page.getByRole('cell', { name: 'waiting', exact: true }).first().waitFor();
  await page.getByLabel('State').selectOption('claimed');
  await page.getByText('Nothing is open.').waitFor();
  assert.match(page.url(), /state=claimed/, 'the address is the state');

  // A letter goes back to its handler, which gives up on it once more.
  await go('#/handlers/shop:bill');
  await page.getByRole('cell', { name: 'order 1 has no price' }).waitFor();
  const letter = (await server.send('GET', '/dead-letters?handler=shop:bill')).letters[0];
  await page.getByLabel(`Choose the letter of ${letter.eventId}`).check();
  await page.getByRole('button', { name: 'Replay 1 letter' }).click();
  await toast('with the handler again');
  for (;;) {
    const { letters } = await server.send('GET', '/dead-letters?handler=shop:bill');
    if (letters.some((one) => one.eventId === letter.eventId && one.failedTs > letter.failedTs)) break;
  }
  await page.getByLabel(`Choose the letter of ${letter.eventId}`).check();
  await page.getByRole('button', { name: 'Delete 1 letter…' }).click();
  await page.getByRole('button', { name: 'Delete for good' }).click();
  await toast('deleted');

  // The session holds what it does not finish.
  await go('#/sessions');
  await page.getByRole('cell', { name: String(program.pid), exact: true }).waitFor();
  await page.getByRole('link', { name: /^shop:pack/ }).click();
  await page.getByRole('heading', { name: 'shop:pack' }).waitFor();
  await page.getByRole('cell', { name: 'claimed', exact: true }).first().waitFor();

  // Its schedule is run once, paused and resumed.
  await go('#/schedules');
  await page.getByText('at 02:30, from Monday to Friday (Europe/Berlin)').waitFor();
  await page.getByRole('button', { name: 'Run now' }).click();
  await toast('fires once');
  await page.getByRole('row', { name: /nightly cleanup/ }).getByRole('cell', { name: '1', exact: true }).waitFor();
  await page.getByRole('button', { name: 'Pause', exact: true }).click();
  await page.getByText('paused', { exact: true }).first().waitFor();
  assert.equal((await server.send('GET', '/schedules')).schedules[0].enabled, false);
  await page.getByRole('button', { name: 'Resume', exact: true }).click();
  await page.getByRole('button', { name: 'Pause', exact: true }).waitFor();
  assert.equal((await server.send('GET', '/topics/cleanup.due/events')).events.length, 1);

  // What waits is delivered now, or cancelled.
  await setTimer();
  await go('#/waiting');
  await page.getByRole('cell', { name: 'order-3', exact: true }).waitFor();
  await page.getByRole('button', { name: 'Deliver now' }).click();
  await toast('under its own id');
  await page.getByText('No delayed events').waitFor();
  await page.getByText('Tea.Ready').first().waitFor();
  await page.getByRole('button', { name: 'Cancel…' }).click();
  await page.getByRole('button', { name: 'Cancel timer' }).click();
  await page.getByText('No timers').waitFor();

  // A handler that will not come back can be forgotten; not one whose events a live session holds.
  await go('#/handlers/shop:pack');
  await page.getByRole('button', { name: 'Forget…' }).click();
  await page.getByText('retention no longer waits for it').waitFor();
  await page.getByRole('button', { name: 'Forget handler' }).click();
  await page.getByText('is alive and holds events of handler shop:pack').waitFor();
  await page.getByRole('button', { name: 'Cancel', exact: true }).click();
  await page.getByRole('heading', { name: 'shop:pack' }).waitFor();
  await end();
});

test('what a token does not allow is shown, disabled, with the reason', async () => {
  const config = '[[auth.tokens]]\ntoken = "reader"\nagent = "r"\nscopes = ["subscribe"]\n';
  const guarded = await Server.start({ config });
  await guarded.send('GET', '/whoami', undefined, 'reader');
  const { page, end } = await browser.open(`${guarded.http}/console/#/waiting`, { may: /Failed to load resource/ });
  await page.getByLabel('Token', { exact: true }).fill('reader');
  await page.getByRole('button', { name: 'Sign in' }).click();
  await page.getByText('Timers cannot be shown: your token has no scope os.').waitFor();
  await page.getByText('No delayed events').waitFor();
  assert.equal(await page.getByText('No timers').count(), 1, 'it is there');
  assert.ok(await page.getByText('No timers').isHidden(), 'and not claimed');
  await end();
  await guarded.remove();
});
