// The page of a topic: its events, its groups, its settings.

import { BUS, get, part, send } from '../api.js';
import { ask, field, snippet, toast } from '../parts/dialog.js';
import { badge, barred, button, crumbs, el, faint, fill, grid, head, link, panel, region, teach } from '../parts/dom.js';
import { icon } from '../parts/icons.js';
import { groupLink } from '../parts/links.js';
import { poll } from '../parts/poll.js';
import { publish } from '../parts/publish.js';
import { number, table, when } from '../parts/table.js';
import { many, size, span } from '../parts/time.js';
import { missing } from '../state.js';
import { events } from './events.js';

/** @typedef {import('../types.js').Topic} Topic */

/** @param {string[]} names @returns {import('../main.js').Page} */
export function page(names) {
  const topic = names[1] ?? '';
  const tab = names[2] ?? 'events';
  /** @type {((query: URLSearchParams) => boolean) | null} */
  let changed = null;
  return {
    title: topic,
    change: (query) => changed?.(query) ?? false,
    async open(context) {
      const { root, signal } = context;
      const doc = /** @type {Topic} */ (await get(`/topics/${part(topic)}`, { signal }));
      const body = el('div', { class: 'stack' });
      fill(root, summary(doc), tabs(topic, tab), body);
      if (tab === 'groups') groups(body, topic, signal);
      else if (tab === 'settings') settings(body, doc);
      else changed = events(body, doc, context);
    },
  };
}

/** @param {Topic} doc */
function summary(doc) {
  const why = missing('publish');
  const parts = doc.streams?.length ?? 1;
  const held = (doc.streams ?? []).reduce((sum, one) => sum + Math.max(0, one.next - Math.max(one.start, 1)), 0);
  const dlq = doc.topic.endsWith('.DLQ');
  return head(
    el('div', { class: 'grow' },
      crumbs(link('#/topics', 'Topics')),
      el('h1', null, doc.topic),
      el('p', { class: 'sub' }, [many(held, 'event'), many(parts, 'partition'), many(doc.groups?.length ?? 0, 'group')].join(' · '),
        dlq ? [' · ', link(`#/letters/${part(doc.topic.slice(0, -4))}`, 'show as dead letters')] : [])),
    el('div', { class: 'acts' },
      el('button', { type: 'button', class: 'btn primary', ...barred(why), onclick: () => void publish(doc.topic) }, icon('plus'), 'Publish')));
}

/** @param {string} topic @param {string} tab */
function tabs(topic, tab) {
  const of = (/** @type {string} */ name, /** @type {string} */ label) =>
    el('a', { href: `#/topics/${part(topic)}${name === 'events' ? '' : `/${name}`}`, 'aria-current': name === tab ? 'page' : null }, label);
  return el('nav', { class: 'tabs', 'aria-label': 'Parts of the topic' }, of('events', 'Events'), of('groups', 'Groups'), of('settings', 'Settings'));
}

/** @param {HTMLElement} body @param {string} topic @param {AbortSignal} signal */
function groups(body, topic, signal) {
  const list = table({
    caption: `Groups of ${topic}`,
    sort: 'lag', descending: true,
    key: (/** @type {any} */ row) => row.group,
    open: (row) => { location.hash = groupLink(topic, row.group); },
    columns: [
      { name: 'group', label: 'Group', by: (row) => row.group, cell: (row) => link(groupLink(topic, row.group), row.group) },
      number('members', 'Members'),
      number('lag', 'Waiting'),
      number('inflight', 'In flight'),
      when('created', 'Since'),
      { name: 'state', label: 'State', cell: (row) => (row.paused ? badge('warn', 'paused') : row.members === 0 ? badge('', 'nobody here') : badge('good', 'works')) },
    ],
  });
  const none = teach('No group reads this topic', 'A group is made by its first subscriber. Its position is kept, also over restarts.',
    snippet(`millrace sub ${topic} --group readers --from earliest --url ${BUS}`));
  fill(body, panel(list.box, none));
  poll(signal, 2000, async () => {
    const found = /** @type {import('../types.js').GroupList} */ (await get(`/topics/${part(topic)}/groups`, { signal }));
    const sum = (/** @type {any} */ group, /** @type {string} */ name) => group.partitions.reduce((/** @type {number} */ total, /** @type {any} */ one) => total + one[name], 0);
    list.show(found.groups.map((group) => ({ ...group, lag: sum(group, 'lag'), inflight: sum(group, 'inflight') })), none);
  });
}

/** Settings with their units and what they do. @type {[string, string, string, (value: any) => string][]} */
const SETTINGS = [
  ['partitions', 'Partitions', 'They may grow, and never shrink.', String],
  ['retentionMs', 'Keep events for', 'Older events are removed.', (value) => span(value)],
  ['retentionBytes', 'Keep at most', 'The oldest events are removed first.', (value) => size(value)],
  ['maxAttempts', 'Attempts', 'After so many deliveries an event becomes a dead letter.', String],
  ['ackTimeoutMs', 'Time to acknowledge', 'Then an event goes to somebody else.', (value) => span(value)],
  ['dedupeWindowMs', 'The same id is stored once within', '', (value) => span(value)],
  ['durability', 'Confirmed when', 'fsync: on disk.', String],
  ['ackMode', 'An ack completes', 'cumulative: all lower ones that the member holds.', String],
  ['compact', 'Compaction', 'Only the newest event of each key is kept.', String],
  ['sticky', 'Sticky keys', 'Events of one key go to one member.', String],
  ['publishACL', 'May publish', '', (value) => value.join(', ')],
  ['subscribeACL', 'May read', '', (value) => value.join(', ')],
  ['groupACL', 'May use groups', '', (value) => JSON.stringify(value)],
  ['schema', 'Schema', '', (value) => JSON.stringify(value)],
];

/** @param {HTMLElement} body @param {Topic} doc */
function settings(body, doc) {
  const own = /** @type {Record<string, any>} */ (doc);
  const defaults = /** @type {Record<string, any>} */ (doc.defaults ?? {});
  const why = missing('admin');
  const rows = SETTINGS.map(([name, label, hint, show]) => {
    const set = own[name] !== undefined && own[name] !== null && own[name] !== false;
    const value = set ? own[name] : defaults[name];
    return el('tr', null,
      el('td', null, el('div', null, label), hint ? el('div', { class: 'muted' }, hint) : ''),
      el('td', null, value === undefined || value === false ? faint('not set') : show(value)),
      el('td', null, set ? badge('accent', 'set here') : faint(value === undefined ? '' : 'of the server')));
  });
  fill(body,
    panel(el('div', { class: 'title' }, el('h2', { class: 'grow' }, 'Settings'),
      button('btn', 'Change…', () => void change(doc), barred(why))),
    region('scroll', 'Settings of the topic', grid('Settings', ['Setting', 'Value', 'Where it comes from'], rows))),
    panel(el('div', { class: 'title' }, el('h2', null, 'Danger zone')),
      el('div', { class: 'body bar' }, el('p', { class: 'grow' }, 'Deleting a topic removes its events, its groups and their positions.'),
        button('btn danger', 'Delete topic…', () => void remove(doc.topic), barred(why)))));
}

/** @param {Topic} doc */
async function change(doc) {
  const own = /** @type {Record<string, any>} */ (doc);
  const number = (/** @type {string} */ name, /** @type {number} */ unit) => el('input', { type: 'number', min: '0', value: own[name] == null ? '' : String(own[name] / unit), placeholder: 'default', 'data-name': name, 'data-unit': unit });
  const inputs = {
    partitions: number('partitions', 1), retentionMs: number('retentionMs', 3_600_000), retentionBytes: number('retentionBytes', 1 << 20),
    maxAttempts: number('maxAttempts', 1), ackTimeoutMs: number('ackTimeoutMs', 1000),
  };
  const done = await ask({
    title: `Settings of ${doc.topic}`,
    act: 'Change',
    body: [el('div', { class: 'fields' },
      field('Partitions', inputs.partitions), field('Keep events for hours', inputs.retentionMs), field('Keep at most MiB', inputs.retentionBytes),
      field('Attempts', inputs.maxAttempts), field('Seconds to acknowledge', inputs.ackTimeoutMs))],
    done: async () => {
      /** @type {Record<string, number | null>} */
      const patch = {};
      for (const [name, input] of Object.entries(inputs)) {
        const unit = Number(input.dataset['unit'] ?? 1);
        const value = input.value === '' ? null : Math.round(Number(input.value) * unit);
        if (value !== (own[name] ?? null) && !(name === 'partitions' && value === null)) patch[name] = value;
      }
      await send('PATCH', `/topics/${part(doc.topic)}`, patch);
      toast('The settings are changed.');
    },
  });
  if (done) window.dispatchEvent(new HashChangeEvent('hashchange'));
}

/** @param {string} topic */
async function remove(topic) {
  const typed = el('input', { type: 'text', autocomplete: 'off', spellcheck: 'false' });
  await ask({
    title: `Delete topic ${topic}?`,
    act: 'Delete for good',
    danger: true,
    body: [el('p', null, 'Its events, groups and positions are removed, and nothing brings them back. Its dead letters stay.'), field(`Type ${topic} to go on`, typed)],
    done: async () => {
      if (typed.value !== topic) throw new Error(`Type ${topic}, or cancel.`);
      await send('DELETE', `/topics/${part(topic)}`);
      toast(`Topic ${topic} is deleted.`);
      location.hash = '#/topics';
    },
  });
}
