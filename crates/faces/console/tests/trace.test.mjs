// The page of a trace: from a failed event to everything it caused, and a trace of thousands.

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

test('from an event to its letter and its replay', async () => {
  await server.send('POST', '/topics', { topic: 'orders', maxAttempts: 2 });
  const worker = await server.worker('orders', 'billing', ({ payload }) => (payload.total < 0 ? { type: 'NACK', reason: 'the <b>total</b> is negative' } : { type: 'ACK' }));
  await server.publish('orders', { payload: { total: -4 } });
  const { page, end } = await browser.open(`${server.http}/console/#/letters/orders`);
  await page.getByRole('link', { name: '0/1' }).first().waitFor();
  await server.send('POST', '/dead-letters/orders/replay', {});

  // From the drawer of the event.
  await page.evaluate(() => (location.hash = '#/topics/orders?e=0:1'));
  await page.getByRole('link', { name: 'What it caused' }).click();
  const grid = page.getByRole('region', { name: /^Trace of/ });
  const row = (name) => grid.getByRole('row', { name });
  await row(/letter orders\.DLQ/).first().waitFor();
  await row(/replay orders/).waitFor();
  const failed = row(/level 2, group billing/).first();
  await failed.getByText('dead letter').waitFor();
  await failed.getByText('×2').waitFor();
  await failed.getByText('the <b>total</b> is negative').waitFor();

  // The rest of a collapsed node is away, and comes back.
  await page.getByRole('button', { name: /^group billing, / }).first().click();
  await row(/replay orders/).waitFor({ state: 'detached' });
  await page.getByRole('button', { name: 'Expand all' }).click();
  await row(/replay orders/).waitFor();
  await page.getByRole('button', { name: 'Copy as text' }).click();
  await page.locator('.toast', { hasText: 'The trace is copied as text' }).waitFor();
  await page.getByRole('button', { name: 'Copy as JSON' }).click();
  await page.locator('.toast', { hasText: 'The trace is copied as JSON' }).waitFor();

  // An event that went well has nothing that failed.
  worker.send(JSON.stringify({ type: 'PING' }));
  const { id } = await server.publish('orders', { payload: { total: 4 } });
  await page.evaluate((to) => (location.hash = `#/trace/${to}?failed=1`), id);
  await page.getByText('Nothing in this trace has failed.').waitFor();
  await page.getByRole('button', { name: 'Failed only' }).click();
  await row(/level 1, event orders/).waitFor();
  // From a delivery to its group.
  await grid.getByRole('link', { name: 'billing' }).click();
  await page.getByRole('heading', { name: 'billing' }).waitFor();
  worker.terminate();
  await end();
});

test('an id that nobody knows is said so', async () => {
  const { page, end } = await browser.open(`${server.http}/console/#/trace`, { may: /404/ });
  await page.getByLabel('Id', { exact: true }).fill('nobody/?&');
  await page.getByRole('button', { name: 'Show its trace' }).click();
  await page.getByText('there is no event, message or timer nobody/?&').waitFor();
  await page.evaluate(() => (location.hash = '#/trace?id=elsewhere'));
  await page.getByText('there is no event, message or timer elsewhere').waitFor();
  await end();
});

test('a trace of 2,000 nodes is drawn at once, with few elements', async () => {
  const published = 1000;
  const { id } = await server.publish('crowd', { payload: 0 });
  const os = new WebSocket(`${server.http.replace('http', 'ws')}/os`);
  await once(os, 'open');
  const answered = new Promise((resolve) => {
    let count = 0;
    os.on('message', () => (count += 1) === published && resolve());
  });
  for (let n = 0; n < published; n += 1) {
    os.send(JSON.stringify({ kind: 'command', type: 'Bus.Publish', data: { topic: 'crowd', payload: n }, metadata: { id: `m-${n}`, timestamp: 1, causation: id } }));
  }
  await answered;
  os.terminate();
  const { page, end } = await browser.open(`${server.http}/console/#/trace/${id}`);
  await page.getByText('2\u2009001 nodes').waitFor();
  const measured = await page.evaluate(async () => {
    for (;;) {
      const found = performance.getEntriesByName('trace drawn')[0];
      if (found) return { ms: found.duration, nodes: found.detail, rows: document.querySelectorAll('.trace tbody tr').length };
      await new Promise(requestAnimationFrame);
    }
  });
  assert.equal(measured.nodes, 2 * published + 1);
  assert.ok(measured.rows < 100, `${measured.rows} rows`);
  console.log(`a trace of ${measured.nodes} nodes: drawn in ${Math.round(measured.ms)} ms, ${measured.rows} rows in the page`);
  // Its end is there, too.
  await page.locator('.trace').evaluate((box) => box.scrollTo(0, box.scrollHeight));
  await page.getByRole('row', { name: /crowd/ }).last().waitFor();
  await end();
});
