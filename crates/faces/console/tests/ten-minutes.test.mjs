// The first ten minutes of a user: an empty server, an event, a group, a worker that fails, its letter, edit and replay.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

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

test('from an empty server to a mended letter', async () => {
  const { page, end } = await browser.open(`${server.http}/`);
  assert.equal(new URL(page.url()).pathname, '/console/', 'the root leads to the console');

  // The empty overview teaches, with this server's address.
  await page.getByText('Nothing has been published yet').waitFor();
  await page.getByText(`curl ${server.http}/topics/hello/events`).waitFor();
  await page.getByRole('button', { name: 'Publish an event' }).click();
  await page.getByLabel('Payload: any JSON').fill('{"hello": "wörld", "big": 12345678901234567890}');
  await page.getByLabel('Key', { exact: true }).fill('k1');
  await page.getByRole('button', { name: 'Publish', exact: true }).click();
  await page.getByRole('link', { name: 'Show it' }).last().click();

  // The link leads to the event, every digit as it was written.
  const drawer = page.getByRole('complementary');
  await drawer.getByText('12345678901234567890').waitFor();
  await drawer.getByText('"wörld"').waitFor();
  await drawer.getByText('No group and no handler').waitFor();
  await page.keyboard.press('Escape');
  await drawer.waitFor({ state: 'detached' });

  // What is published by somebody else arrives by itself.
  await server.publish('hello', { payload: { from: 'elsewhere' } });
  await page.getByRole('cell', { name: '{"from":"elsewhere"}' }).waitFor();

  // A topic with few attempts, and a worker that refuses some.
  await page.keyboard.press('g');
  await page.keyboard.press('t');
  await page.getByRole('heading', { name: 'Topics' }).waitFor();
  await page.getByRole('button', { name: 'Create topic' }).click();
  await page.getByLabel('Name', { exact: true }).fill('orders');
  await page.getByRole('button', { name: 'Create', exact: true }).click();
  await page.getByRole('heading', { name: 'orders' }).waitFor();
  await page.getByRole('navigation', { name: 'Parts of the topic' }).getByRole('link', { name: 'Settings' }).click();
  await page.getByRole('button', { name: 'Change…' }).click();
  await page.getByRole('spinbutton', { name: 'Attempts' }).fill('1');
  await page.getByRole('button', { name: 'Change', exact: true }).click();
  await page.locator('.toast', { hasText: 'The settings are changed.' }).waitFor();
  assert.equal((await server.send('GET', '/topics/orders')).maxAttempts, 1);
  const worker = await server.worker('orders', 'billing', ({ payload }) => (payload.total < 0 ? { type: 'NACK', reason: 'the total is negative' } : { type: 'ACK' }));
  await server.publish('orders', { payload: { total: 10 }, key: 'customer-1' });
  await server.publish('orders', { payload: { total: -4 }, key: 'customer-1' });

  // The overview says so, and the letters say why.
  await page.getByRole('link', { name: 'Overview' }).click();
  await page.getByRole('link', { name: /1 dead letter/ }).click();
  await page.getByRole('link', { name: 'orders' }).click();
  await page.getByRole('button', { name: 'the total is negative' }).waitFor();
  await page.getByRole('cell', { name: 'the total is negative' }).last().click();
  const letter = page.getByRole('complementary');
  await letter.getByText('Beside the event of this key').waitFor();
  await letter.getByText('"total": 10').waitFor();
  assert.match(page.url(), /l=0:1$/, 'a letter has a link');
  await page.reload();
  await letter.getByText('"total": 10').waitFor();
  await letter.getByRole('button', { name: 'Edit and replay…' }).click();
  await page.getByRole('textbox', { name: 'Payload' }).fill('{"total": 4}');
  await page.getByRole('button', { name: 'Publish the edited event' }).click();
  await page.locator('.toast', { hasText: 'The edited event is published' }).getByRole('link').click();
  const mended = page.getByRole('complementary');
  await mended.getByText('x-replayed-edited').waitFor();
  await mended.getByRole('link', { name: 'billing' }).waitFor();
  await mended.getByText('done').waitFor();
  worker.close();
  await end();
});

test('a group is watched, paused, moved and deleted', async () => {
  await server.send('POST', '/topics', { topic: 'work', partitions: 2 });
  for (let n = 0; n < 6; n++) await server.publish('work', { payload: n, key: `k${n}` });
  const worker = await server.worker('work', 'slow', () => null, { max_inflight: 2 });
  const { page, end } = await browser.open(`${server.http}/console/#/topics/work/groups/slow`);
  const tile = (name, value) => page.locator('.tile', { hasText: name }).locator('.value', { hasText: value }).waitFor();
  await tile('Waiting', '6');
  await tile('In flight', '2');
  await page.getByRole('cell', { name: 'with a member' }).first().waitFor();
  await page.getByRole('cell', { name: '2 of 2' }).waitFor();

  await page.getByRole('button', { name: 'Pause', exact: true }).click();
  await page.getByText('This group is paused').waitFor();
  assert.equal((await server.send('GET', '/topics/work/groups/slow')).paused, true);
  await page.getByRole('button', { name: 'Resume' }).click();
  await page.getByText('This group is paused').waitFor({ state: 'hidden' });

  worker.close();
  await tile('Members', '0');
  await page.getByRole('button', { name: 'Move…' }).click();
  await page.getByText('The group stands there already.').waitFor();
  assert.ok(await page.getByLabel('Value', { exact: true }).isDisabled(), 'the oldest event has no value');
  await page.getByLabel('To', { exact: true }).selectOption('latest');
  await page.getByText('leaves out 6 events, which are never delivered').waitFor();
  await page.getByRole('button', { name: 'Move', exact: true }).click();
  await tile('Waiting', '0');

  await page.getByRole('button', { name: 'Delete…' }).click();
  await page.getByText('Its positions in 2 partitions are forgotten').waitFor();
  await page.getByRole('button', { name: 'Delete group' }).click();
  await page.getByText('No group reads this topic').waitFor();
  await end();
});

test('events are searched, tailed and exported', async () => {
  await server.send('POST', '/topics', { topic: 'log', partitions: 3 });
  await server.publish('log', Array.from({ length: 300 }, (_, n) => ({ payload: { n, odd: n % 2 === 1 }, key: `k${n % 7}`, headers: { lane: n % 3 === 0 ? 'fast' : 'slow' } })));
  const { page, end } = await browser.open(`${server.http}/console/#/topics/log`);
  await page.getByText('200 events.').waitFor();
  await page.getByRole('button', { name: 'Older events' }).click();
  await page.getByText('300 events. That is all.').waitFor();
  const rows = await page.locator('tbody tr').count();
  assert.ok(rows < 100, `${rows} rows are drawn of 300`);

  await page.getByLabel('Value in the payload').fill('$.n:17');
  await page.keyboard.press('Enter');
  await page.getByText('Looked at 300 events, 1 found.').waitFor();
  assert.match(page.url(), /path=/, 'the address says what is searched');
  await page.reload();
  await page.getByText('Looked at 300 events, 1 found.').waitFor();
  await page.getByLabel('Value in the payload').fill('');
  await page.getByLabel('Header', { exact: true }).fill('lane:fast');
  await page.keyboard.press('Enter');
  await page.getByText('Looked at 300 events, 100 found.').waitFor();
  await page.getByLabel('Header', { exact: true }).fill('');
  await page.keyboard.press('Enter');
  await page.getByText('200 events.').waitFor();

  await page.getByRole('button', { name: 'Live' }).click();
  await server.publish('log', { payload: { live: true } });
  await page.getByRole('cell', { name: '{"live":true}' }).waitFor();
  await page.getByRole('button', { name: 'Live' }).click();

  const saved = page.waitForEvent('download');
  await page.getByRole('button', { name: 'Export' }).click();
  assert.equal((await saved).suggestedFilename(), 'log.ndjson');

  await page.getByRole('cell', { name: '{"live":true}' }).click();
  await page.getByRole('complementary').getByText('"live"').waitFor();
  await page.goBack();
  await page.getByRole('complementary').waitFor({ state: 'detached' });

  await page.keyboard.press('/');
  await page.keyboard.type('log');
  await page.keyboard.press('Enter');
  await page.getByRole('heading', { name: 'log' }).waitFor();
  await end();
});

test('the tail has every event, also those of a moment before it began and after it ended', async () => {
  await server.send('POST', '/topics', { topic: 'ticks', partitions: 3 });
  let sent = 0;
  const publish = (times) => server.publish('ticks', Array.from({ length: times }, () => ({ payload: { n: sent++ }, key: `k${sent}` })));
  await publish(1);
  const { page, end } = await browser.open(`${server.http}/console/#/topics/ticks`);
  const shown = (n) => page.getByRole('cell', { name: `{"n":${n}}`, exact: true }).waitFor();
  await shown(0);
  // The list does not ask again before it is told to: what follows is known to the tail alone.
  await page.getByRole('button', { name: /Stop asking/ }).click();
  await publish(3);
  await page.getByRole('button', { name: 'Live' }).click();
  await shown(3);
  await publish(3);
  await shown(6);
  await page.getByRole('button', { name: 'Live' }).click();
  // More than one page of the list.
  await publish(300);
  await page.getByRole('button', { name: /Go on asking/ }).click();
  await page.getByText(`${sent} events.`).waitFor();
  await end();
});

test('a topic is deleted only by its name, letters only after a question', async () => {
  await server.send('POST', '/topics', { topic: 'gone', maxAttempts: 1 });
  const worker = await server.worker('gone', 'g', () => ({ type: 'NACK', reason: 'no' }));
  for (let n = 0; n < 3; n++) await server.publish('gone', { payload: n });
  const { page, end } = await browser.open(`${server.http}/console/#/letters/gone`);
  const reason = page.getByRole('row').filter({ has: page.getByRole('button', { name: 'no', exact: true }) });
  await reason.waitFor();
  // The letters may still be on their way: the page is asked for again until all are there.
  while ((await page.getByRole('checkbox', { name: /Choose letter/ }).count()) < 3) {
    await page.reload();
    await reason.waitFor();
  }
  await page.getByRole('checkbox', { name: 'Choose letter 0:1' }).check();
  await page.getByRole('button', { name: 'Delete…' }).click();
  await page.getByText('nothing brings them back').waitFor();
  await page.getByRole('button', { name: 'Delete for good' }).click();
  await page.locator('.toast', { hasText: '1 deleted.' }).waitFor();
  await page.getByRole('checkbox', { name: 'Choose all that are shown' }).check();
  await page.getByRole('button', { name: 'Replay…' }).click();
  await page.getByText('Every group of the topic gets them').waitFor();
  await page.getByRole('button', { name: 'Publish again' }).click();
  await page.locator('.toast', { hasText: '2 published again' }).waitFor();
  worker.close();

  await page.goto(`${server.http}/console/#/topics/gone/settings`);
  await page.getByRole('button', { name: 'Delete topic…' }).click();
  await page.getByLabel('Type gone to go on').fill('wrong');
  await page.getByRole('button', { name: 'Delete for good' }).click();
  await page.getByText('Type gone, or cancel.').waitFor();
  await page.getByLabel('Type gone to go on').fill('gone');
  await page.getByRole('button', { name: 'Delete for good' }).click();
  await page.locator('.toast', { hasText: 'Topic gone is deleted.' }).waitFor();
  await end();
});

test('all letters of a reason are replayed by a job', async () => {
  await server.send('POST', '/topics', { topic: 'many', maxAttempts: 1 });
  const worker = await server.worker('many', 'g', ({ payload }) => ({ type: 'NACK', reason: payload % 2 ? 'odd' : 'even' }));
  for (let n = 0; n < 6; n++) await server.publish('many', { payload: n });
  // The last letter is written a moment after its event was refused.
  while (((await server.send('GET', '/dead-letters')).deadLetters.find((one) => one.topic === 'many')?.count ?? 0) < 6);
  worker.close();
  const { page, end } = await browser.open(`${server.http}/console/#/letters/many`);
  await page.getByRole('button', { name: 'odd', exact: true }).click();
  await page.getByText('3 letters match.').waitFor();
  await page.getByRole('button', { name: 'Replay all that match…' }).click();
  await page.getByRole('heading', { name: 'Replay 3 letters?' }).waitFor();
  await page.getByRole('button', { name: 'Begin to publish again' }).click();
  await page.locator('.toast', { hasText: 'The job runs.' }).getByRole('link').click();
  await page.getByRole('cell', { name: '3 of 3' }).waitFor();
  await page.getByText('3 published').waitFor();
  await end();
});
