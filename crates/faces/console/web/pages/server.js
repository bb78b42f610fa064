// How the server itself is doing: commits, the disk, bounds, refusals, and what its log warns of.

import { get } from '../api.js';
import { banner } from '../parts/banner.js';
import { chart, recent } from '../parts/chart.js';
import { badge, barred, card, el, faint, fill, grid, head, muted, panel, remark, title } from '../parts/dom.js';
import { icon } from '../parts/icons.js';
import { meter, tile } from '../parts/meter.js';
import { poll } from '../parts/poll.js';
import { table } from '../parts/table.js';
import { count, rate, size, span, time } from '../parts/time.js';
import { missing } from '../state.js';

/** @typedef {import('../types.js').Stats} Stats */
/** @typedef {{ at: number, stats: Stats }} Sample */
/** @typedef {import('../types.js').LogLine} LogLine */

const SERIES = 'commits,backlogBytes';

/** @returns {import('../main.js').Page} */
export function page() {
  return {
    title: 'Server',
    async open({ root, signal }) {
      const tiles = el('div', { class: 'tiles' });
      const heat = el('div', { class: 'body stack' });
      const bounds = el('div', { class: 'body' });
      const trend = el('div', { class: 'body' });
      const refusals = table({
        caption: 'Refusals since the start, by code',
        sort: 'count', descending: true,
        key: (/** @type {[string, number]} */ [code]) => code,
        columns: [
          { name: 'code', label: 'Code', class: 'mono', by: ([code]) => code, cell: ([code]) => code },
          { name: 'count', label: 'Refused', class: 'num', by: ([, times]) => times, cell: ([, times]) => count(times) },
        ],
      });
      const none = remark('Nothing was refused since the start.');
      const log = logCard();
      fill(root, head(title('Server')));
      const why = missing('metrics');
      const sees = why === null || missing('inspect') === null;
      if (sees) {
        root.append(tiles, el('div', { class: 'two' },
          el('div', { class: 'stack' },
            card('Time of a commit', heat),
            card('Commits per second, up to the last hour', trend)),
          el('div', { class: 'stack' },
            card('Bounds', bounds),
            card('Refusals', refusals.box, none))));
      } else {
        root.append(banner('', 'key', `The figures: ${why}.`));
      }
      root.append(log.box);
      /** @type {Sample[]} */
      let samples = [];
      if (sees) {
        poll(signal, 1000, async () => {
          const stats = /** @type {Stats} */ (await get('/stats', { signal }));
          const before = samples.at(-1);
          if (before && before.stats.uptimeMs > stats.uptimeMs) samples = [];
          samples = [...samples, { at: performance.now(), stats }].slice(-30);
          fill(tiles, tilesOf(stats, samples));
          fill(heat, heatOf(stats));
          fill(bounds, boundsOf(stats));
          const codes = Object.entries(stats.refusals ?? {});
          refusals.show(codes, none);
        });
        poll(signal, 30_000, async () => {
          const history = /** @type {import('../types.js').History} */ (await get('/stats/history', { signal, query: { ...recent(), series: SERIES } }));
          const seconds = history.step / 1000;
          const points = /** @type {import('../parts/chart.js').Points} */ ((history.series[0]?.points ?? []).map(([ts, value]) => [ts, value == null ? null : value / seconds]));
          const known = points.filter(([, value]) => value !== null);
          fill(trend, known.length === 0 ? muted('Nothing is recorded yet: every 10 seconds there is one more point.')
            : chart(points, `Commits per second, at most ${rate(Math.max(...known.map(([, value]) => value ?? 0)))}`, (value) => rate(value)));
        });
      }
      if (log.why === null) poll(signal, 5000, async () => log.show(/** @type {import('../types.js').Log} */ (await get('/log', { signal, bare: true, query: { level: log.level(), limit: 200 } }))));
    },
  };
}

/** The growth per second over the last samples. @param {Sample[]} samples @param {(stats: Stats) => number} of */
function speed(samples, of) {
  const [first, last] = [samples[0], samples.at(-1)];
  if (!first || !last || first === last) return null;
  return ((of(last.stats) - of(first.stats)) / (last.at - first.at)) * 1000;
}

/** A quantile of commit times, as the bound of the class that holds it. @param {[number, number][]} classes @param {number} part */
function quantile(classes, part) {
  const all = classes.reduce((sum, [, times]) => sum + times, 0);
  if (all === 0) return '–';
  let seen = 0;
  for (const [bound, times] of classes) {
    seen += times;
    if (seen >= all * part) return bound === 0 ? `over ${micros(classes.at(-2)?.[0] ?? 0)}` : `≤ ${micros(bound)}`;
  }
  return '–';
}

/** @param {number} value */
const micros = (value) => (value < 1000 ? `${value} µs` : span(value / 1000));

/** @param {Stats} stats */
const classesOf = (stats) => /** @type {[number, number][]} */ (stats.server?.commitMicros ?? []);

/** @param {Stats} stats @param {Sample[]} samples */
function tilesOf(stats, samples) {
  const server = stats.server ?? {};
  const commits = server.commits ?? 0;
  const classes = classesOf(stats);
  return [
    tile('Syncs', `${rate(speed(samples, (one) => one.server?.commits ?? 0))} /s`, `${count(commits)} since the start`),
    tile('Events per sync', commits > 0 ? ((server.commitEvents ?? 0) / commits).toFixed(1) : '–', 'since the start'),
    tile('Commit, p50', quantile(classes, 0.5), '50 of 100 were as fast'),
    tile('Commit, p99', quantile(classes, 0.99), '99 of 100 were as fast'),
    tile('Waiting', count(server.requestsWaiting ?? 0), 'requests for a commit', (server.requestsWaiting ?? 0) > 1000 ? 'warn' : ''),
    tile('Up', span(stats.uptimeMs), (server.commitsRetried ?? 0) > 0 ? `${count(server.commitsRetried ?? 0)} commits tried again` : ''),
  ];
}

/** A strip of columns, one for each class of commit times, and the same as a table. @param {Stats} stats */
function heatOf(stats) {
  const classes = classesOf(stats);
  const most = Math.max(1, ...classes.map(([, times]) => times));
  const label = (/** @type {number} */ bound, /** @type {number} */ at) => (bound === 0 ? `over ${micros(classes[at - 1]?.[0] ?? 0)}` : `up to ${micros(bound)}`);
  if (classes.every(([, times]) => times === 0)) return [muted('Nothing has been committed yet.')];
  const columns = classes.map(([bound, times], at) => {
    const bar = el('i', { title: `${label(bound, at)}: ${count(times)}` });
    // A class that occurs rarely must still be seen: it is the one to look at.
    bar.style.height = `${times === 0 ? 0 : Math.max(6, (Math.log1p(times) / Math.log1p(most)) * 100)}%`;
    return bar;
  });
  const told = classes.map(([bound, times], at) => /** @type {[string, number]} */ ([label(bound, at), times])).filter(([, times]) => times > 0);
  return [
    el('div', { class: 'heat', role: 'img', 'aria-label': `Times of commits: ${told.map(([name, times]) => `${name} ${times}`).join(', ')}` }, columns),
    muted(`From ${label(classes[0]?.[0] ?? 0, 0)} at the left to ${label(classes.at(-1)?.[0] ?? 0, classes.length - 1)} at the right; the bars are on a logarithmic scale.`),
    el('details', null, el('summary', { class: 'muted' }, 'As a table'), grid('Times of commits', ['Took', 'Commits'], told.map(([name, times]) => el('tr', null, el('td', null, name), el('td', { class: 'num' }, count(times)))), true)),
  ];
}

/** @param {Stats} stats */
function boundsOf(stats) {
  const server = stats.server ?? {};
  const row = (/** @type {string} */ name, /** @type {string} */ value) => [el('dt', null, name), el('dd', { class: 'num' }, value)];
  const trouble = server.storageFailed ?? server.trouble;
  return [
    trouble ? el('p', { class: 'banner bad', role: 'alert' }, icon('bad'), trouble) : '',
    el('div', { class: 'stack' },
      meter('Backlog of the disk', server.backlogBytes ?? 0, server.backlogBytesMax ?? 0, size),
      meter('Connections', server.connections ?? 0, server.connectionsMax ?? 0, count),
      meter('Tails', server.tails ?? 0, server.tailsMax ?? 0, count),
      el('dl', { class: 'facts' },
        server.storeBytes == null ? [] : row('Store', size(server.storeBytes)),
        server.walBytes == null ? [] : row('Its log (WAL)', size(server.walBytes)),
        server.freeBytes == null ? [] : row('Free on disk', size(server.freeBytes)),
        row('To be read by clients', size(server.outboundBytes ?? 0)),
        row('Fresh events in memory', size(server.tailBytes ?? 0)),
        row('Read ahead for groups', size(server.fetchedBytes ?? 0)))),
  ];
}

function logCard() {
  const why = missing('admin');
  const level = el('select', { 'aria-label': 'Lines from this level on', ...barred(why) }, [['warn', 'warnings and errors'], ['error', 'errors'], ['info', 'everything']].map(([value, label]) => el('option', { value }, label)));
  const list = table({
    caption: 'The last lines of the log, the newest first',
    columns: [
      { name: 'ts', label: 'Time', cell: (/** @type {LogLine} */ row) => time(row.ts) },
      { name: 'level', label: 'Level', cell: (row) => badge(row.level === 'error' ? 'bad' : row.level === 'warn' ? 'warn' : '', row.level) },
      { name: 'target', label: 'From', class: 'mono', cell: (row) => row.target },
      { name: 'message', label: 'What', cell: (row) => el('span', null, row.message, Object.entries(row.fields).map(([name, value]) => faint(` ${name}=${value}`)), row.cut ? badge('', 'cut') : '') },
    ],
  });
  const none = remark('Nothing at this level since the start.');
  const told = el('p', { class: 'more', hidden: true });
  const box = panel(el('div', { class: 'title' }, el('h2', { class: 'grow' }, 'Log'), level),
    why === null ? [list.box, none, told] : el('p', { class: 'more' }, `The log: ${why}.`));
  return {
    box, why,
    level: () => level.value,
    /** @param {import('../types.js').Log} doc */
    show(doc) {
      list.show(doc.lines, none);
      told.hidden = doc.forgotten === 0;
      fill(told, `${count(doc.forgotten)} older lines are kept no longer: the whole log is on the server's stderr.`);
    },
  };
}
