// Takes the pictures of docs/console: every page of a demo in both themes. `npm run pictures`, with MILLRACE_BIN set.

import { mkdirSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';

import { Browser, Server } from './support.mjs';

const FOLDER = join(dirname(fileURLToPath(import.meta.url)), '..', '..', '..', '..', 'docs', 'console');
/** The demo needs some time until there is something of everything to see. */
const LOAD_MS = 60_000;
/** The rows of a page come after its frame. */
const ROWS_MS = 2_500;

const server = await Server.start({ flags: ['--demo'] });
const browser = await Browser.start();
try {
  server.program();
  await pause(LOAD_MS);
  const { deadLetters } = await server.send('GET', '/dead-letters');
  const failed = deadLetters.find((one) => one.count > 0).topic;
  const { events } = await server.send('GET', `/topics/${failed}.DLQ/events?order=desc&limit=1`);
  const letter = events[0];
  const origin = letter.headers?.['x-dlq-id'] ?? letter.id;
  const { groups } = await server.send('GET', `/topics/${failed}/groups`);
  /** @type {[string, string][]} */
  const pages = [
    ['overview', '#/'], ['topics', '#/topics'], ['topic', `#/topics/${failed}`], ['event', `#/event/${origin}`],
    ['group', `#/topics/${failed}/groups/${groups[0].group}`], ['letters', `#/letters/${failed}`],
    ['letter', `#/letters/${failed}?l=${letter.partition}/${letter.offset}`], ['jobs', '#/jobs'], ['trace', `#/trace/${origin}`],
    ['handlers', '#/handlers'], ['handler', '#/handlers/shop:mail'], ['sessions', '#/sessions'], ['schedules', '#/schedules'],
    ['waiting', '#/waiting'], ['server', '#/server'], ['capabilities', '#/capabilities?c=Memory'], ['access', '#/access'], ['settings', '#/settings'],
  ];
  mkdirSync(FOLDER, { recursive: true });
  for (const colorScheme of ['light', 'dark']) {
    const { page } = await browser.open(`${server.http}/console/`, { colorScheme });
    for (const [name, hash] of pages) {
      await page.evaluate((to) => (location.hash = to), hash);
      await pause(ROWS_MS);
      await page.screenshot({ path: join(FOLDER, `${name}-${colorScheme}.png`) });
    }
    await page.context().close();
  }
} finally {
  await browser.end();
  await server.remove();
}
