// The page Overview: rates, lag and failures at a glance.

import { BUS, ROOT, get } from '../api.js';
import { banner } from '../parts/banner.js';
import { recent, spark } from '../parts/chart.js';
import { snippet } from '../parts/dialog.js';
import { badge, barred, card, el, faint, fill, head, link, muted, remark, title } from '../parts/dom.js';
import { icon } from '../parts/icons.js';
import { groupLink, topicLink } from '../parts/links.js';
import { meter, tile } from '../parts/meter.js';
import { poll } from '../parts/poll.js';
import { number, table } from '../parts/table.js';
import { count, many, rate, size, span } from '../parts/time.js';
import { curl, missing, wantsToken } from '../state.js';

/** @typedef {import('../types.js').Stats} Stats */
/** @typedef {import('../types.js').History} History */
/** @typedef {{ at: number, stats: Stats }} Sample */

const AGAIN_MS = 10_000;
/** An event that nobody holds for so long has nobody to take it; shorter, it may be on its way. */
const IDLE_MS = 30_000;
const LATE_MS = 60_000;
const SERIES = 'published,delivered,acks,lag,inflight,deadLetters';

/** @returns {import('../main.js').Page} */
export function page() {
  return {
    title: 'Overview',
    async open({ root, signal }) {
      const tiles = el('div', { class: 'tiles' });
      const notes = el('ul', { class: 'notes' });
      const groups = groupTable();
      const bounds = el('div', { class: 'body' });
      const teach = el('div', { hidden: true });
      const nobody = remark('No group reads yet.');
      if (missing('metrics') && missing('inspect')) {
        fill(root, head(title('Overview')), banner('', 'key', 'Your token has no scope metrics, so there are no figures here.'), el('p', null, link('#/topics', 'Go to the topics')));
        return;
      }
      const live = el('div', { class: 'two' },
        card('Groups', groups.box, nobody),
        el('div', { class: 'stack' },
          card('Needs attention', notes),
          card('Server', bounds)));
      fill(root, head(title('Overview')), teach, tiles, live);
      /** @type {History | null} */
      let history = null;
      /** Dead letters since the start, when the history was read: later ones are not in it. @type {number | null} */
      let counted = null;
      /** @type {Sample[]} */
      let samples = [];
      const draw = (/** @type {Stats} */ stats) => {
        const none = stats.published === 0 && stats.topics <= 3 && stats.groups === 0;
        teach.hidden = !none;
        if (none && teach.childElementCount === 0) fill(teach, empty());
        const letters = Math.round(lettersOf(history)) + stats.deadLetters - (counted ?? stats.deadLetters);
        fill(tiles, tilesOf(stats, samples, history, letters));
        const behind = groupRows(stats);
        groups.show(behind, nobody);
        fill(notes, attention(stats, samples, letters, behind));
        fill(bounds, boundsOf(stats));
      };
      poll(signal, AGAIN_MS, async () => {
        history = await get('/stats/history', { signal, query: { ...recent(), series: SERIES } });
        const last = samples.at(-1);
        counted = last?.stats.deadLetters ?? null;
        if (last) draw(last.stats);
      });
      poll(signal, 1000, async () => {
        const stats = /** @type {Stats} */ (await get('/stats', { signal }));
        const before = samples.at(-1);
        // A server that was started again counts anew.
        if (before && before.stats.uptimeMs > stats.uptimeMs) samples = [];
        counted ??= stats.deadLetters;
        samples = [...samples, { at: performance.now(), stats }].slice(-120);
        draw(stats);
      });
    },
  };
}

/** The growth per second over the last few samples. @param {Sample[]} samples @param {(stats: Stats) => number} of */
function speed(samples, of) {
  const last = samples.at(-1);
  const first = samples.at(-6) ?? samples[0];
  if (!last || !first || last === first) return null;
  return ((of(last.stats) - of(first.stats)) / (last.at - first.at)) * 1000;
}

/** @param {History | null} history @param {string} name @param {boolean} perSecond @returns {import('../parts/chart.js').Points} */
function line(history, name, perSecond) {
  const series = history?.series.find((one) => one.name === name);
  const divide = perSecond ? (history?.step ?? 1000) / 1000 : 1;
  return (series?.points ?? []).map(([at, value]) => /** @type {[number, number | null]} */ ([at, value === null ? null : value / divide]));
}

/** Dead letters of the last hour, as recorded. @param {History | null} history */
const lettersOf = (history) => line(history, 'deadLetters', false).reduce((sum, [, value]) => sum + (value ?? 0), 0);

/** @param {Stats} stats @param {Sample[]} samples @param {History | null} history @param {number} letters */
function tilesOf(stats, samples, history, letters) {
  const behind = groupRows(stats).filter((row) => row.lag > 0).length;
  const figure = (/** @type {string} */ name, /** @type {string} */ value, /** @type {string} */ unit, /** @type {string} */ note, /** @type {import('../parts/chart.js').Points} */ points, tone = '') =>
    tile(name, unit ? [value, el('small', null, unit)] : value, note, tone, ...(points.length > 0 ? [spark(points, `${name}, up to the last hour`)] : []));
  return [
    figure('Published', rate(speed(samples, (one) => one.published)), '/s', `${count(stats.published)} since the start`, line(history, 'published', true)),
    figure('Delivered', rate(speed(samples, (one) => one.delivered)), '/s', stats.redeliveries > 0 ? `${count(stats.redeliveries)} again` : '', line(history, 'delivered', true)),
    figure('Acknowledged', rate(speed(samples, (one) => one.acks)), '/s', stats.nacks > 0 ? `${count(stats.nacks)} refused` : '', line(history, 'acks', true)),
    figure('Waiting', count(stats.lag), '', stats.lag > 0 ? `in ${many(behind, 'group')}` : '', line(history, 'lag', false)),
    figure('In flight', count(stats.inflight), '', many(stats.subscriptions, 'subscription'), line(history, 'inflight', false)),
    figure('Dead letters', count(letters), 'last hour', `${count(stats.deadLetters)} since the start`, line(history, 'deadLetters', false), letters > 0 ? 'bad' : ''),
  ];
}

/** @typedef {{ topic: string, group: string, lag: number, lagMs: number | null, inflight: number, paused: boolean }} Row */

/** @param {Stats} stats @returns {Row[]} */
function groupRows(stats) {
  const rows = Object.entries(stats.byGroup ?? {}).flatMap(([topic, groups]) =>
    Object.entries(groups).map(([group, of]) => ({ topic, group, lag: of.lag ?? 0, lagMs: of.lagMs ?? null, inflight: of.inflight ?? 0, paused: of.paused ?? false })));
  return rows.sort((a, b) => b.lag - a.lag);
}

function groupTable() {
  return table({
    caption: 'Groups, the one that is furthest behind first',
    sort: 'lag', descending: true,
    key: (/** @type {Row} */ row) => `${row.topic}/${row.group}`,
    open: (row) => { location.hash = groupLink(row.topic, row.group); },
    columns: [
      { name: 'group', label: 'Group', by: (row) => row.group, cell: (row) => link(groupLink(row.topic, row.group), row.group) },
      { name: 'topic', label: 'Topic', by: (row) => row.topic, cell: (row) => link(topicLink(row.topic), row.topic) },
      number('lag', 'Waiting'),
      { name: 'lagMs', label: 'Behind', class: 'num', by: (row) => row.lagMs ?? 0, cell: (row) => (row.lagMs === null ? '–' : row.lag === 0 ? '0 s' : span(row.lagMs)) },
      number('inflight', 'In flight'),
      { name: 'state', label: '', cell: (row) => (row.paused ? badge('warn', 'paused') : '') },
    ],
  });
}

/** @param {Stats} stats @param {Sample[]} samples @param {number} letters @param {Row[]} rows */
function attention(stats, samples, letters, rows) {
  /** @type {HTMLElement[]} */
  const found = [];
  const note = (/** @type {string} */ tone, /** @type {(Node | string)[]} */ text) =>
    found.push(el('li', null, el('span', { class: `state ${tone}` }, icon(tone === 'bad' ? 'bad' : 'warn')), el('span', null, text)));
  const server = stats.server;
  if (server?.storageFailed) note('bad', [`The store has failed: ${server.storageFailed}`]);
  if (server?.trouble) note('bad', [server.trouble]);
  const first = samples[0];
  for (const row of rows.filter((one) => one.lag > 0).slice(0, 50)) {
    const name = link(groupLink(row.topic, row.group), row.group);
    const before = first?.stats.byGroup?.[row.topic]?.[row.group]?.lag;
    const wait = `${many(row.lag, 'event')} ${row.lag === 1 ? 'waits' : 'wait'}`;
    const since = row.lagMs === null ? '' : `, the oldest for ${span(row.lagMs)}`;
    const late = row.lagMs ?? 0;
    if (row.paused) note('warn', [name, ` on ${row.topic} is paused: ${wait}${since}`]);
    else if (row.inflight === 0 && late > IDLE_MS) note('warn', [`nobody reads ${row.topic} as `, name, `: ${wait}${since}`]);
    else if (before !== undefined && row.lag > before + 10 && samples.length > 20) note('warn', [name, ` on ${row.topic} falls behind: ${wait}, ${count(row.lag - before)} more than before`]);
    else if (late > LATE_MS) note('warn', [name, ` on ${row.topic} is late: ${wait}${since}`]);
  }
  if (letters > 0) note('bad', [link('#/letters', many(letters, 'dead letter')), ' in the last hour']);
  if (stats.os && (stats.os.unhealthy ?? 0) > 0) note('bad', [`${stats.os.unhealthy} capabilities of the loop are unhealthy`]);
  if (server && (server.connections ?? 0) > 0.8 * (server.connectionsMax ?? Infinity)) note('warn', ['Nearly all connections are taken']);
  if (found.length === 0) return [el('li', null, el('span', { class: 'state good' }, icon('good')), faint('Nothing.'))];
  return found.slice(0, 8);
}

/** @param {Stats} stats */
function boundsOf(stats) {
  const server = stats.server;
  if (!server) return [];
  const row = (/** @type {string} */ name, /** @type {string} */ value) => [el('dt', null, name), el('dd', { class: 'num' }, value)];
  const commits = server.commits ?? 0;
  return [
    el('div', { class: 'stack' },
      meter('Connections', server.connections ?? 0, server.connectionsMax ?? 0, count),
      meter('Backlog of the disk', server.backlogBytes ?? 0, server.backlogBytesMax ?? 0, size),
      el('dl', { class: 'facts' },
        row('Up', span(stats.uptimeMs)),
        row('Syncs', count(commits)),
        row('Events per sync', commits > 0 ? ((server.commitEvents ?? 0) / commits).toFixed(1) : '–'),
        row('Time of a sync', commits > 0 ? `${(((server.commitSeconds ?? 0) / commits) * 1000).toFixed(2)} ms` : '–'),
        server.storeBytes == null ? [] : row('Store', `${size(server.storeBytes)}${server.walBytes ? ` + ${size(server.walBytes)} log` : ''}`),
        server.freeBytes == null ? [] : row('Free on disk', size(server.freeBytes)))),
  ];
}

function empty() {
  const why = missing('publish');
  const press = el('button', { type: 'button', class: 'btn primary', ...barred(why), onclick: async () => (await import('../parts/publish.js')).publish('hello') }, 'Publish an event');
  return el('section', { class: 'card teach' },
    el('h2', null, 'Nothing has been published yet'),
    muted('Publish an event, from here or from a terminal. Its answer comes when it is on disk. Then read it with a group: what the group has acknowledged it does not get again.'),
    el('div', null, press),
    wantsToken() ? muted('The commands take the token from the variable ', el('code', null, 'MILLRACE_TOKEN'), '.') : '',
    snippet(`${curl()} ${new URL('topics/hello/events', ROOT).href} -d '{"payload":{"hello":"world"}}'`),
    snippet(`millrace pub hello '{"hello":"world"}' --url ${BUS}`),
    snippet(`millrace sub hello --group readers --from earliest --url ${BUS}`));
}
