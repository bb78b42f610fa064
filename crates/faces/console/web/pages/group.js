// The page of a group: its lag in events and in time, its members, and the events that they hold.

import { errorText, get, part, send } from '../api.js';
import { chart, recent } from '../parts/chart.js';
import { ask, field, toast } from '../parts/dialog.js';
import { badge, card, crumbs, el, fill, head, link, muted, remark } from '../parts/dom.js';
import { eventLink } from '../parts/event.js';
import { icon } from '../parts/icons.js';
import { topicLink } from '../parts/links.js';
import { tile } from '../parts/meter.js';
import { press } from '../parts/pages.js';
import { poll } from '../parts/poll.js';
import { table } from '../parts/table.js';
import { count, many, rate, span, time } from '../parts/time.js';
import { missing, state } from '../state.js';

/** @typedef {import('../types.js').Group} Group */

/** @param {string[]} names @returns {import('../main.js').Page} */
export function page(names) {
  const [, topic = '', , group = ''] = names;
  const path = `/topics/${part(topic)}/groups/${part(group)}`;
  return {
    title: `${group} on ${topic}`,
    async open({ root, signal }) {
      const tiles = el('div', { class: 'tiles' });
      const banner = el('div', { class: 'banner', hidden: true });
      const acts = el('div', { class: 'acts' });
      const trend = el('div', { class: 'body' });
      const partitions = partitionTable(topic, group);
      const members = memberTable(group);
      const flights = flightTable(topic, group);
      const nobody = remark('Nobody is subscribed.');
      const nothing = remark('Nothing is in flight.');
      fill(root,
        head(el('div', { class: 'grow' },
          crumbs(link('#/topics', 'Topics'), link(topicLink(topic), topic), link(`${topicLink(topic)}/groups`, 'Groups')),
          el('h1', null, group)), acts),
        banner, tiles,
        el('section', { class: 'card', hidden: state.namespace !== 'default' }, el('div', { class: 'title' }, el('h2', null, 'Waiting, up to the last hour')), trend),
        card('Members', members.box, nobody),
        card('In flight', flights.box, nothing),
        card('Partitions', partitions.box));
      /** @type {{ at: number, done: number, lag: number }[]} */
      let samples = [];
      const again = poll(signal, 1000, async () => {
        const [doc, held] = await Promise.all([
          /** @type {Promise<Group>} */ (get(path, { signal })),
          /** @type {Promise<import('../types.js').Inflight>} */ (get(`${path}/inflight`, { signal, query: { limit: 200 } })),
        ]);
        const done = doc.partitions.reduce((sum, one) => sum + one.committed, 0);
        samples = [...samples, { at: performance.now(), done, lag: doc.lag }].slice(-30);
        fill(tiles, tilesOf(doc, samples));
        fill(acts, actsOf(doc, path, () => void again()));
        banner.hidden = !doc.paused;
        fill(banner, icon('pause'), 'This group is paused: nothing is delivered to it, also after a restart, until it is resumed.');
        partitions.show(doc.partitions);
        members.show(doc.members, nobody);
        flights.show(held.inflight, nothing);
      });
      if (state.namespace !== 'default' || missing('metrics')) return;
      poll(signal, 30_000, async () => {
        const history = /** @type {import('../types.js').History} */ (await get('/stats/history', { signal, query: { ...recent(), series: `lag:${topic}/${group}` } }));
        const points = /** @type {import('../parts/chart.js').Points} */ ((history.series[0]?.points ?? []).map(([ts, value]) => [ts, value]));
        const known = points.filter(([, value]) => value !== null);
        const last = known.at(-1)?.[1] ?? 0;
        fill(trend, known.length === 0 ? muted('Nothing is recorded yet: every 10 seconds there is one more point.')
          : chart(points, `${group} had ${last} events waiting at the end, at most ${Math.max(...known.map(([, value]) => value ?? 0))} in the last hour`, count));
      });
    },
  };
}

/** @param {Group} doc @param {{ at: number, done: number, lag: number }[]} samples */
function tilesOf(doc, samples) {
  const first = samples[0];
  const last = samples.at(-1);
  const seconds = first && last ? (last.at - first.at) / 1000 : 0;
  const speed = first && last && seconds > 0 ? (last.done - first.done) / seconds : null;
  const sinks = first && last && seconds > 0 ? (first.lag - last.lag) / seconds : 0;
  const clear = doc.lag === 0 ? 'nothing waits' : sinks > 0.05 ? `clear in about ${span((doc.lag / sinks) * 1000)}` : samples.length > 5 ? (sinks < -0.05 ? 'and it grows' : 'and it stays') : '';
  const late = (doc.lagMs ?? 0) > 60_000;
  return [
    tile('Waiting', count(doc.lag), clear, late ? 'warn' : ''),
    tile('Behind', doc.lagMs == null ? '–' : doc.lag === 0 ? '0 s' : span(doc.lagMs), 'age of the oldest one', late ? 'warn' : ''),
    tile('Done', `${rate(speed)} /s`, 'over the last half minute'),
    tile('In flight', count(doc.inflight), `each may be held ${span(doc.ackTimeoutMs)}`),
    tile('Members', count(doc.members.length), doc.members.length === 0 ? 'nobody is subscribed' : '', doc.members.length === 0 && doc.lag > 0 ? 'bad' : ''),
  ];
}

/** @param {Group} doc @param {string} path @param {() => void} again */
function actsOf(doc, path, again) {
  const why = missing('subscribe');
  const act = (/** @type {string} */ label, /** @type {() => Promise<unknown>} */ does, tone = '') => press(label, why, does, again, tone);
  return [
    doc.paused ? act('Resume', () => send('POST', `${path}/resume`), 'primary') : act('Pause', () => send('POST', `${path}/pause`)),
    act('Move…', () => seek(doc, path)),
    act('Delete…', () => remove(doc, path), 'danger'),
  ];
}

/** @param {Group} doc @param {string} path */
async function seek(doc, path) {
  const kind = el('select', null, [['earliest', 'the oldest event'], ['latest', 'the end: leave out what waits'], ['offset', 'an offset'], ['timestamp', 'a time']].map(([value, label]) => el('option', { value }, label)));
  const value = el('input', { type: 'text', disabled: true, placeholder: '' });
  const partition = el('select', null, el('option', { value: '' }, 'all partitions'), doc.partitions.map((one) => el('option', { value: one.partition }, `partition ${one.partition}`)));
  const told = el('p', { class: 'banner calm', role: 'status' }, 'Choose where to go.');
  const body = (/** @type {boolean} */ dryRun) => {
    const number = kind.value === 'timestamp' ? (/^\d+$/.test(value.value) ? Number(value.value) : Date.parse(value.value)) : Number(value.value);
    const needs = kind.value === 'offset' || kind.value === 'timestamp';
    if (needs && (value.value === '' || Number.isNaN(number))) throw new Error(kind.value === 'offset' ? 'Give an offset.' : 'Give a time such as 2026-11-18 20:00.');
    return { from: { kind: kind.value, ...(needs ? { value: number } : {}) }, ...(partition.value === '' ? {} : { partition: Number(partition.value) }), ...(dryRun ? { dryRun: true } : {}) };
  };
  const preview = async () => {
    value.disabled = kind.value !== 'offset' && kind.value !== 'timestamp';
    value.placeholder = kind.value === 'timestamp' ? '2026-11-18 20:00' : '1';
    try {
      const sought = /** @type {import('../types.js').Sought} */ (await send('POST', `${path}/seek`, body(true)));
      const moved = sought.partitions.map((one) => one.next - 1 - (doc.partitions.find((of) => of.partition === one.partition)?.committed ?? 0));
      const back = moved.filter((by) => by < 0).reduce((sum, by) => sum - by, 0);
      const ahead = moved.filter((by) => by > 0).reduce((sum, by) => sum + by, 0);
      const words = [back > 0 ? `moves back ${many(back, 'event')}, which are delivered again` : '', ahead > 0 ? `leaves out ${many(ahead, 'event')}, which are never delivered` : ''].filter(Boolean);
      told.className = ahead > 0 ? 'banner' : 'banner calm';
      fill(told, words.length === 0 ? 'The group stands there already.' : `${doc.group} ${words.join(' and ')}.`);
    } catch (error) {
      fill(told, errorText(error));
    }
  };
  for (const control of [kind, partition]) control.addEventListener('change', () => void preview());
  value.addEventListener('input', () => void preview());
  void preview();
  await ask({
    title: `Move ${doc.group}`,
    act: 'Move',
    body: [el('div', { class: 'fields' }, field('To', kind), field('Value', value), field('In', partition)), told],
    done: async () => {
      await send('POST', `${path}/seek`, body(false));
      toast(`${doc.group} is moved.`);
    },
  });
}

/** @param {Group} doc @param {string} path */
async function remove(doc, path) {
  await ask({
    title: `Delete group ${doc.group}?`,
    act: 'Delete group',
    danger: true,
    body: [el('p', null, `Its positions in ${many(doc.partitions.length, 'partition')} are forgotten; ${count(doc.lag)} events that wait for it stay in the topic. A group of this name begins anew.`)],
    done: async () => {
      await send('DELETE', path);
      toast(`Group ${doc.group} is deleted.`);
      location.hash = `${topicLink(doc.topic)}/groups`;
    },
  });
}

/** @param {string} topic @param {string} group */
function partitionTable(topic, group) {
  return table({
    caption: `Partitions of ${group}`,
    key: (/** @type {any} */ row) => String(row.partition),
    columns: [
      { name: 'partition', label: 'Partition', cell: (row) => row.partition },
      { name: 'committed', label: 'Done up to', class: 'num', cell: (row) => (row.committed === 0 ? '0' : link(eventLink(topic, row.partition, row.committed), count(row.committed))) },
      { name: 'ts', label: 'Published', cell: (row) => time(row.committedTs) },
      { name: 'next', label: 'Next', class: 'num', cell: (row) => (row.lag === 0 ? '–' : link(eventLink(topic, row.partition, row.committed + 1), count(row.committed + 1))) },
      { name: 'lag', label: 'Waiting', class: 'num', cell: (row) => count(row.lag) },
      { name: 'lagMs', label: 'Behind', class: 'num', cell: (row) => (row.lagMs == null ? '–' : row.lag === 0 ? '0 s' : span(row.lagMs)) },
      { name: 'inflight', label: 'In flight', class: 'num', cell: (row) => count(row.inflight) },
    ],
  });
}

/** @param {string} group */
function memberTable(group) {
  return table({
    caption: `Members of ${group}`,
    key: (/** @type {any} */ row) => String(row.connection),
    columns: [
      { name: 'who', label: 'Who', cell: (row) => row.agent ?? (row.peer ? `connection ${row.connection}` : 'inside the server') },
      { name: 'peer', label: 'From', class: 'mono', cell: (row) => row.peer ?? '–' },
      { name: 'since', label: 'Since', cell: (row) => time(row.since) },
      { name: 'inflight', label: 'Holds', class: 'num', cell: (row) => `${count(row.inflight)} of ${count(row.maxInflight)}` },
      { name: 'oldest', label: 'Oldest held', class: 'num', cell: (row) => (row.oldestMs == null ? '–' : span(row.oldestMs)) },
      { name: 'credits', label: 'Credits', class: 'num', cell: (row) => row.credits ?? '–' },
      { name: 'state', label: 'State', cell: (row) => (row.congested ? badge('bad', 'does not read') : badge('good', 'reads')) },
    ],
  });
}

/** @param {string} topic @param {string} group */
function flightTable(topic, group) {
  const words = /** @type {Record<string, string>} */ ({ leased: 'with a member', ready: 'waits for a member', later: 'waits for its time' });
  return table({
    caption: `Events that ${group} holds`,
    key: (/** @type {any} */ row) => `${row.partition}:${row.offset}`,
    columns: [
      { name: 'offset', label: 'Event', class: 'mono', cell: (row) => link(eventLink(topic, row.partition, row.offset), `${row.partition}/${row.offset}`) },
      { name: 'state', label: 'State', cell: (row) => words[row.state] ?? row.state },
      { name: 'who', label: 'Connection', cell: (row) => row.connection ?? '–' },
      { name: 'attempts', label: 'Attempt', class: 'num', cell: (row) => (row.attempts > 1 ? badge('warn', row.attempts) : row.attempts) },
      { name: 'since', label: 'Delivered', cell: (row) => time(row.deliveredAt) },
      { name: 'until', label: 'Until', class: 'num', cell: (row) => (row.until == null ? '–' : `in ${span(Math.max(0, row.until - Date.now() - state.skew))}`) },
      { name: 'reason', label: 'Last failure', cell: (row) => row.reason ?? '' },
    ],
  });
}
