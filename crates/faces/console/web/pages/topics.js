// All topics in one table, from one request.

import { get, part, send } from '../api.js';
import { ask, field, snippet, toast } from '../parts/dialog.js';
import { barred, el, faint, fill, head, link, panel, title } from '../parts/dom.js';
import { icon } from '../parts/icons.js';
import { groupLink, topicLink } from '../parts/links.js';
import { poll } from '../parts/poll.js';
import { table } from '../parts/table.js';
import { count, rate, size, time } from '../parts/time.js';
import { ROOT } from '../api.js';
import { curl, missing } from '../state.js';

/** @typedef {import('../types.js').Topic} Topic */
/** @typedef {{ topic: Topic, rate: number | null }} Row */

/** @returns {import('../main.js').Page} */
export function page() {
  return {
    title: 'Topics',
    async open({ root, query, signal, set }) {
      const filter = el('input', { type: 'search', placeholder: 'Filter', 'aria-label': 'Filter topics', value: query.get('q') ?? '' });
      const system = el('input', { type: 'checkbox', checked: query.get('system') === '1' });
      const why = missing('admin');
      const make = el('button', { type: 'button', class: 'btn primary', ...barred(why), onclick: () => void create() }, icon('plus'), 'Create topic');
      const note = el('div', { class: 'more', hidden: true });
      const list = table({
        caption: 'Topics',
        sort: query.get('sort') ?? 'topic', descending: query.get('desc') === '1',
        onsort: (name, descending) => set({ sort: name, desc: descending ? '1' : null }),
        key: (/** @type {Row} */ row) => row.topic.topic,
        open: (row) => { location.hash = topicLink(row.topic.topic); },
        columns: [
          { name: 'topic', label: 'Topic', by: (row) => row.topic.topic, cell: (row) => link(topicLink(row.topic.topic), row.topic.topic) },
          { name: 'events', label: 'Events', class: 'num', by: (row) => row.topic.events ?? 0, cell: (row) => count(row.topic.events ?? 0) },
          { name: 'bytes', label: 'Size', class: 'num', by: (row) => row.topic.bytes ?? 0, cell: (row) => size(row.topic.bytes ?? 0) },
          { name: 'rate', label: 'Published /s', class: 'num', by: (row) => row.rate ?? 0, cell: (row) => rate(row.rate) },
          { name: 'last', label: 'Last event', by: (row) => row.topic.lastTs ?? 0, cell: (row) => time(row.topic.lastTs) },
          { name: 'lag', label: 'Groups and what waits for them', by: (row) => row.topic.lag ?? 0, cell: groups },
          { name: 'letters', label: 'Dead letters', class: 'num', by: (row) => row.topic.deadLetters ?? 0, cell: letters },
        ],
      });
      const card = panel(el('div', { class: 'title' }, filter, el('label', { class: 'check' }, system, 'Show system topics')), list.box, note);
      fill(root, head(title('Topics'), el('div', { class: 'acts' }, make)), card);
      /** @type {Map<string, { at: number, published: number }>} */
      let before = new Map();
      /** @type {Row[]} */
      let rows = [];
      const draw = () => {
        const text = filter.value.toLowerCase();
        const shown = rows.filter((row) => (system.checked || !row.topic.topic.startsWith('system.')) && row.topic.topic.toLowerCase().includes(text));
        list.show(shown);
        const none = shown.length === 0;
        note.hidden = !none;
        list.box.hidden = none;
        if (none) fill(note, rows.some((row) => !row.topic.topic.startsWith('system.')) ? 'No topic has this in its name.' : teach());
      };
      filter.addEventListener('input', () => { set({ q: filter.value }); draw(); });
      system.addEventListener('change', () => { set({ system: system.checked ? '1' : null }); draw(); });
      poll(signal, 5000, async () => {
        const page = /** @type {import('../types.js').TopicList} */ (await get('/topics', { signal }));
        const at = performance.now();
        const next = new Map();
        rows = page.topics.map((topic) => {
          const published = topic.published ?? 0;
          const known = before.get(topic.topic);
          next.set(topic.topic, { at, published });
          return { topic, rate: known && published >= known.published ? ((published - known.published) / (at - known.at)) * 1000 : null };
        });
        before = next;
        draw();
        if (page.next) {
          note.hidden = false;
          fill(note, `The first ${count(rows.length)} topics are shown. Use the search of the frame to find others.`);
        }
      });
    },
  };
}

/** @param {Row} row */
function groups({ topic }) {
  const standing = Object.entries(topic.standing ?? {});
  if (standing.length === 0) return faint('–');
  const shown = standing.sort(([, a], [, b]) => b.lag - a.lag).slice(0, 4);
  const chip = (/** @type {[string, { lag: number, paused: boolean }]} */ [name, of]) => el('a', { class: `badge ${of.paused ? 'warn' : of.lag > 0 ? 'accent' : ''}`, href: groupLink(topic.topic, name), title: of.paused ? 'paused' : null },
    `${name} ${of.paused ? '⏸ ' : ''}${count(of.lag)}`);
  return el('div', { class: 'lags' }, shown.map((one) => chip(one)), standing.length > 4 ? faint(`and ${standing.length - 4}`) : '');
}

/** @param {Row} row */
function letters({ topic }) {
  const found = topic.deadLetters ?? 0;
  return found === 0 ? faint('0') : link(`#/letters/${part(topic.topic)}`, count(found));
}

function teach() {
  return el('div', { class: 'teach' }, el('h2', null, 'There are no topics yet'),
    el('p', null, 'A topic is made when somebody publishes to it or reads from it. Create one here to give it settings first.'),
    snippet(`${curl()} ${new URL('topics/orders/events', ROOT).href} -d '{"payload":{"id":1}}'`));
}

async function create() {
  const name = el('input', { type: 'text', autocomplete: 'off', required: true, placeholder: 'orders' });
  const partitions = el('input', { type: 'number', min: '1', value: '1' });
  const retention = el('input', { type: 'number', min: '0', placeholder: 'for ever' });
  await ask({
    title: 'Create a topic',
    act: 'Create',
    body: [
      field('Name', name, 'Letters, digits and . _ : -'),
      el('div', { class: 'fields' }, field('Partitions', partitions, 'They may grow, and never shrink.'), field('Keep events for hours', retention)),
    ],
    done: async () => {
      const body = { topic: name.value.trim(), partitions: Number(partitions.value || 1), ...(retention.value ? { retentionMs: Number(retention.value) * 3_600_000 } : {}) };
      const made = /** @type {any} */ (await send('POST', '/topics', body));
      toast(`Topic ${made.topic} is there.`, { link: ['Open it', topicLink(made.topic)] });
      location.hash = topicLink(made.topic);
    },
  });
}
