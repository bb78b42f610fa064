// Every page in both themes, wide and narrow, through axe; and the budgets of files and first paint.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { after, before, test } from 'node:test';

import { Browser, Server } from './support.mjs';

const AXE = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
/** The address, and a text that is there when the page is. */
const PAGES = [
  ['#/overview', 'Needs attention'],
  ['#/topics', 'billing'],
  ['#/topics/orders', '2 events'],
  ['#/topics/orders?e=0/1', 'How far everybody is'],
  ['#/topics/orders/groups', 'billing'],
  ['#/topics/orders/settings', 'Danger zone'],
  ['#/topics/orders/groups/billing', 'Partitions'],
  ['#/letters', 'Given up by'],
  ['#/letters/orders', 'because'],
  ['#/letters/orders?l=0/1', 'Letter 0/1'],
  ['#/jobs', 'No jobs'],
  ['#/handlers', 'shop:mail'],
  ['#/handlers/shop:mail', 'the mail server is away'],
  ['#/handlers/shop:bill', 'has no price'],
  ['#/sessions', 'alive'],
  ['#/schedules', 'at 02:30, from Monday to Friday'],
  ['#/waiting', 'order-3'],
  ['#/event/orders-nothing', 'Nothing in this namespace'],
  ['#/trace', 'Show its trace'],
  ['#/server', 'Time of a commit'],
  ['#/capabilities', 'Syscall'],
  ['#/capabilities?c=Memory', 'Memory.Get'],
  ['#/access', 'ws-'],
  ['#/settings', 'frame-bytes-max'],
];

let server;
let browser;
before(async () => {
  server = await Server.start();
  browser = await Browser.start();
  await server.send('POST', '/topics', { topic: 'orders', maxAttempts: 1 });
  const worker = await server.worker('orders', 'billing', ({ payload }) => (payload.bad ? { type: 'NACK', reason: 'because' } : null));
  const { id } = await server.publish('orders', { payload: { bad: true }, key: 'k' });
  PAGES.push([`#/trace/${id}`, 'orders.DLQ']);
  await server.publish('orders', { payload: { nested: [1, 'two', null] } });
  worker.unref?.();
  server.program();
});
after(async () => {
  await browser?.end();
  await server?.remove();
});

for (const colorScheme of ['light', 'dark']) {
  for (const width of [1440, 320]) {
    test(`every page is accessible: ${colorScheme}, ${width} px`, async () => {
      // The policy is set aside for this run alone, to load axe.
      const options = { colorScheme, viewport: { width, height: 900 }, bypassCSP: true, reducedMotion: 'reduce', may: /Failed to load resource/ };
      const { page, end } = await browser.open(`${server.http}/console/`, options);
      await page.addScriptTag({ content: AXE });
      for (const [hash, text] of PAGES) {
        await page.evaluate((to) => (location.hash = to), hash);
        await page.getByText(text).first().waitFor();
        const found = await page.evaluate(() => globalThis.axe.run(document, { runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'] }));
        const told = found.violations.map(({ id, nodes }) => `${id}: ${nodes.map((node) => `${node.html.slice(0, 160)} ${node.failureSummary?.split('\n')[1] ?? ''}`).slice(0, 3).join(' | ')}`);
        assert.deepEqual(told, [], `${hash} ${colorScheme} ${width}`);
        const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
        assert.ok(wide <= 0, `${hash} at ${width} px is ${wide} px too wide`);
      }
      await end();
    });
  }
}

test('the first page is small', async () => {
  let bytes = 0;
  const respond = (response) => {
    if (new URL(response.url()).pathname.startsWith('/console/')) bytes += Number(response.headers()['content-length'] ?? 0);
  };
  const { page, end } = await browser.open(`${server.http}/console/`, { respond });
  await page.getByText('Needs attention').waitFor();
  assert.ok(bytes > 20_000 && bytes < 90_000, `${bytes} bytes`);
  const paint = await page.evaluate(() => performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? 0);
  console.log(`first page: ${bytes} bytes, first contentful paint after ${Math.round(paint)} ms`);
  await end();
});
