// Dead letters: what failed, why, and how to mend it and send it again.

import { BUS, Problem, get, lines, part, send } from '../api.js';
import { banner } from '../parts/banner.js';
import { ask, drawer, closeDrawer, field, snippet, toast } from '../parts/dialog.js';
import { barred, button, card, crumbs, el, fact, fill, head, link, panel, teach, title } from '../parts/dom.js';
import { eventLink, fetchEvent, traceLink } from '../parts/event.js';
import { envelope, pretty, tree } from '../parts/json.js';
import { diff } from '../parts/diff.js';
import { groupLink, topicLink } from '../parts/links.js';
import { poll } from '../parts/poll.js';
import { number, table, when } from '../parts/table.js';
import { headersOf } from '../parts/text.js';
import { count, many, time } from '../parts/time.js';
import { missing } from '../state.js';

/** @typedef {import('../parts/json.js').Envelope} Envelope */
/** @typedef {import('../types.js').LetterSummary} Summary */

const PAGE = 100;

/** @param {string[]} names @returns {import('../main.js').Page} */
export function page(names) {
  const topic = names[1];
  return {
    title: topic ? `Dead letters of ${topic}` : 'Dead letters',
    open: (context) => (topic ? ofTopic(topic, context) : all(context)),
  };
}

/** @param {import('../main.js').Context} context */
async function all({ root, signal }) {
  const list = table({
    caption: 'Topics and handlers with dead letters',
    sort: 'count', descending: true,
    key: (/** @type {any} */ row) => `${row.kind}/${row.name}/${row.topic}`,
    open: (row) => { location.hash = row.kind === 'handler' ? `#/handlers/${part(row.name)}` : `#/letters/${part(row.topic)}`; },
    columns: [
      { name: 'topic', label: 'Topic', by: (row) => row.topic, cell: (row) => link(`#/letters/${part(row.topic)}`, row.topic) },
      { name: 'who', label: 'Given up by', by: (row) => row.name, cell: (row) => (row.kind === 'handler' ? el('span', null, 'handler ', link(`#/handlers/${part(row.name)}`, row.name)) : row.name) },
      number('count', 'Letters'),
      when('last', 'Last'),
    ],
  });
  const none = teach('No dead letters', 'An event that its group has refused or left unanswered too often becomes a dead letter: a copy in TOPIC.DLQ, with the reason. Here it can be looked at, mended and published again.',
    snippet(`millrace dead-letters list --url ${BUS}`));
  fill(root, head(title('Dead letters')), panel(list.box, none));
  poll(signal, 5000, async () => {
    const found = /** @type {import('../types.js').DeadLetters} */ (await get('/dead-letters', { signal }));
    const rows = [
      ...found.deadLetters.filter((one) => one.count > 0 && !one.topic.startsWith('system.')).map((one) => ({ kind: 'group', name: 'groups', topic: one.topic, count: one.count, last: one.lastTs })),
      ...(found.handlers ?? []).map((one) => ({ kind: 'handler', name: one.handler, topic: one.topic, count: one.count, last: one.newestTs })),
    ];
    list.show(rows, none);
  });
}

/** @param {Envelope} letter @param {string} name */
const header = (letter, name) => letter.headers.find(([of]) => of === name)?.[1] ?? '';

/** @param {string} topic @param {import('../main.js').Context} context */
async function ofTopic(topic, { root, query, signal, set }) {
  const dlq = `${topic}.DLQ`;
  /** @type {Envelope[]} */
  let rows = [];
  /** @type {Set<string>} */
  let chosen = new Set();
  let cursor = '';
  let more = false;
  let only = { group: query.get('group') ?? '', reason: query.get('reason') ?? '' };
  const place = (/** @type {Envelope} */ row) => `${row.partition}:${row.offset}`;
  const matches = (/** @type {Envelope} */ row) => (!only.group || header(row, 'x-dlq-group') === only.group) && (!only.reason || header(row, 'x-dlq-reason') === only.reason);
  const shown = () => rows.filter(matches);
  const reasons = el('div');
  const whyReplay = missing('subscribe', 'publish');
  const whyDelete = missing('admin');
  const replayPress = el('button', { type: 'button', class: 'btn primary', title: whyReplay, onclick: () => void replay() }, 'Replay…');
  const deletePress = el('button', { type: 'button', class: 'btn danger', title: whyDelete, onclick: () => void remove() }, 'Delete…');
  const word = el('span', { class: 'grow muted' });
  const foot = el('div', { class: 'more' });
  const every = el('input', { type: 'checkbox', 'aria-label': 'Choose all that are shown' });
  const list = table({
    caption: `Dead letters of ${topic}, the newest first`,
    open: (/** @type {Envelope} */ row) => void show(row),
    columns: [
      { name: 'choose', label: '', cell: (row) => el('input', { type: 'checkbox', 'aria-label': `Choose letter ${place(row)}`, checked: chosen.has(place(row)), onchange: (/** @type {Event} */ event) => pick(row, /** @type {HTMLInputElement} */ (event.target).checked) }) },
      { name: 'ts', label: 'Given up', cell: (row) => time(row.ts) },
      { name: 'place', label: 'Letter', class: 'mono', cell: (row) => link(eventLink(dlq, row.partition, row.offset), `${row.partition}/${row.offset}`) },
      { name: 'group', label: 'Group', cell: (row) => header(row, 'x-dlq-group') },
      { name: 'attempts', label: 'Attempts', class: 'num', cell: (row) => header(row, 'x-dlq-attempts') },
      { name: 'reason', label: 'Reason', cell: (row) => header(row, 'x-dlq-reason') },
      { name: 'key', label: 'Key', class: 'mono', cell: (row) => row.key ?? '' },
    ],
  });
  const none = el('p', { class: 'teach muted', hidden: true }, 'No dead letters.');
  fill(root,
    head(el('div', { class: 'grow' },
      crumbs(link('#/letters', 'Dead letters')), el('h1', null, topic),
      el('p', { class: 'sub' }, 'Kept in ', link(topicLink(dlq), dlq)))),
    card('Why', reasons),
    panel(el('div', { class: 'title' }, el('label', { class: 'check' }, every, 'All'), word, replayPress, deletePress), list.box, none, foot));

  every.addEventListener('change', () => {
    chosen = new Set(every.checked ? shown().map(place) : []);
    draw();
  });
  /** @param {Envelope} row @param {boolean} is */
  function pick(row, is) {
    if (is) chosen.add(place(row));
    else chosen.delete(place(row));
    drawActs();
  }
  function drawActs() {
    const n = chosen.size;
    replayPress.disabled = whyReplay !== null || n === 0;
    deletePress.disabled = whyDelete !== null || n === 0;
    fill(word, n === 0 ? 'Choose letters to replay or delete them.' : `${count(n)} chosen`);
  }
  function draw() {
    const now = shown();
    list.show(now, none);
    drawActs();
    fill(foot, `${many(now.length, 'letter')}${only.group || only.reason ? ' match' : ''}. `, more ? button('btn small', 'Older letters', () => void load(true)) : '',
      only.group || only.reason ? [
        button('btn small', 'Show all reasons', () => narrow('', '')),
        button('btn small', 'Replay all that match…', () => void job('replay'), barred(whyReplay)),
        button('btn small danger', 'Delete all that match…', () => void job('delete'), barred(whyDelete)),
      ] : []);
  }
  /** @param {string} group @param {string} reason */
  function narrow(group, reason) {
    only = { group, reason };
    chosen = new Set();
    every.checked = false;
    set({ group, reason });
    draw();
  }
  /** @param {boolean} onwards */
  async function load(onwards) {
    try {
      const page = await lines(`/topics/${part(dlq)}/events`, { signal, query: { order: 'desc', partition: 'all', limit: PAGE, ...(onwards ? { cursor } : {}) } });
      rows = [...(onwards ? rows : []), ...page.lines.map(envelope)];
      cursor = page.headers.get('millrace-cursor') ?? '';
      more = page.headers.get('millrace-more') === 'true';
    } catch (error) {
      if (!(error instanceof Problem) || error.status !== 404) throw error;
      rows = [];
    }
    draw();
  }
  async function why() {
    const found = /** @type {Summary} */ (await get(`/dead-letters/${part(topic)}/summary`, { signal }));
    const grid = table({
      caption: 'Reasons', sort: 'count', descending: true,
      columns: [
        { name: 'reason', label: 'Reason', by: (/** @type {any} */ row) => row.reason, cell: (row) => row.kind === 'handler' ? row.reason : el('button', { type: 'button', class: 'linkish', onclick: () => narrow(row.group, row.reason) }, row.reason || 'no reason given') },
        { name: 'group', label: 'Given up by', by: (row) => row.group, cell: (row) => (row.kind === 'handler' ? el('span', null, 'handler ', link(`#/handlers/${part(row.group)}`, row.group)) : `group ${row.group}`) },
        number('count', 'Letters'),
        { name: 'first', label: 'First', by: (row) => row.firstTs, cell: (row) => time(row.firstTs) },
        { name: 'last', label: 'Last', by: (row) => row.lastTs, cell: (row) => time(row.lastTs) },
      ],
    });
    grid.show(found.reasons);
    fill(reasons, found.reasons.length === 0 ? el('p', { class: 'more' }, 'Nothing has failed, or everything was mended.') : grid.box,
      found.complete ? '' : el('p', { class: 'more' }, `The newest ${count(found.scanned)} letters were looked at.`));
  }
  async function again() {
    chosen = new Set();
    every.checked = false;
    await Promise.all([load(false), why()]);
  }
  const letters = () => [...chosen].map((one) => one.split(':').map(Number));

  async function replay() {
    await ask({
      title: `Replay ${many(chosen.size, 'letter')}?`,
      act: 'Publish again',
      body: [el('p', null, `Their events are published to ${topic} again, as new events at its end.`), banner('', 'warn', 'Every group of the topic gets them, not only the one that gave up. What was replayed before is not stored twice.')],
      done: async () => {
        const done = /** @type {any} */ (await send('POST', `/dead-letters/${part(topic)}/replay`, { letters: letters() }));
        const first = done.published[0];
        toast(`${count(done.replayed)} published again${done.duplicates ? `, ${count(done.duplicates)} had been before` : ''}.`, first ? { link: ['Show the first', eventLink(topic, first[0], first[1])] } : {});
      },
    });
    await again();
  }
  async function remove() {
    const done = await ask({
      title: `Delete ${many(chosen.size, 'letter')}?`,
      act: 'Delete for good',
      danger: true,
      body: [el('p', null, `They are removed from ${dlq}, and nothing brings them back. The events themselves stay in ${topic} as long as it keeps them.`)],
      done: async () => {
        const told = /** @type {any} */ (await send('POST', `/dead-letters/${part(topic)}/delete`, { letters: letters() }));
        toast(`${count(told.deleted)} deleted.`);
      },
    });
    if (done) await again();
  }

  /** A job takes the filter and not the page: all letters, also those that are not shown. @param {'replay' | 'delete'} kind */
  async function job(kind) {
    const filter = { ...(only.group ? { group: only.group } : {}), ...(only.reason ? { reason: only.reason } : {}) };
    const preview = /** @type {any} */ (await send('POST', '/jobs', { kind, topic, filter, dryRun: true }));
    const rate = el('input', { type: 'number', min: '1', placeholder: 'as many as possible' });
    const which = `${preview.complete ? '' : 'more than '}${many(preview.total, 'letter')}`;
    await ask({
      title: kind === 'replay' ? `Replay ${which}?` : `Delete ${which}?`,
      act: kind === 'replay' ? 'Begin to publish again' : 'Begin to delete for good',
      danger: kind === 'delete',
      body: [
        el('p', null, only.reason ? `All letters of ${topic} with the reason “${only.reason}”.` : `All letters of ${topic} that group ${only.group} gave up on.`),
        banner('', 'warn', kind === 'replay' ? 'Every group of the topic gets the events again.' : 'Nothing brings the letters back.'),
        field('Letters per second', rate, 'The server does it, also when this page is closed. It can be cancelled.'),
      ],
      done: async () => {
        await send('POST', '/jobs', { kind, topic, filter, ...(rate.value ? { ratePerSecond: Number(rate.value) } : {}) });
        toast('The job runs.', { link: ['Show it', '#/jobs'] });
      },
    });
  }

  /** @param {Envelope} letter */
  async function show(letter) {
    const from = Number(header(letter, 'x-dlq-partition'));
    const offset = Number(header(letter, 'x-dlq-offset'));
    const own = letter.headers.filter(([name]) => !name.startsWith('x-dlq-'));
    const compare = el('div');
    const edit = button('btn primary', 'Edit and replay…', () => void mend(letter), barred(whyReplay));
    set({ l: place(letter) });
    drawer(`Letter ${letter.partition}/${letter.offset}`, [], [
      el('section', null, banner('bad', 'bad', header(letter, 'x-dlq-reason') || 'no reason given'),
        el('dl', { class: 'facts' },
          fact('Given up by', link(groupLink(topic, header(letter, 'x-dlq-group')), header(letter, 'x-dlq-group'))),
          fact('Attempts', header(letter, 'x-dlq-attempts')),
          fact('At', time(letter.ts)),
          fact('The event', link(eventLink(topic, from, offset), `${topic} ${from}/${offset}`)),
          letter.key === null ? [] : fact('Key', el('code', null, letter.key)),
          own.flatMap(([name, value]) => fact(el('code', null, name), el('code', null, value))))),
      el('div', { class: 'bar' }, edit, el('a', { class: 'btn', href: traceLink(letter.id, dlq) }, 'What it caused')),
      el('section', null, el('h3', null, 'Payload'), tree(letter.payload)),
      compare,
    ], () => set({ l: null }));
    if (letter.key === null) return;
    const before = await lines(`/topics/${part(topic)}/events`, { signal, query: { order: 'desc', partition: from, key: letter.key, from: Math.max(offset - 1, 1), limit: 1 } }).catch(() => null);
    const earlier = before?.lines[0] ? envelope(before.lines[0]) : await fetchEvent(topic, from, offset - 1).then((one) => (one?.key === letter.key ? one : null)).catch(() => null);
    if (earlier && earlier.offset < offset) {
      fill(compare, el('section', null, el('h3', null, 'Beside the event of this key before it'),
        diff(pretty(earlier.payload), pretty(letter.payload), [`${earlier.partition}/${earlier.offset}`, 'this letter'])));
    }
  }

  /** @param {Envelope} letter */
  async function mend(letter) {
    const payload = el('textarea', { rows: 12, spellcheck: 'false' });
    payload.value = pretty(letter.payload);
    const key = el('input', { type: 'text', value: letter.key ?? '' });
    const headers = el('textarea', { rows: 2, spellcheck: 'false', placeholder: 'name: value' });
    headers.value = letter.headers.filter(([name]) => !name.startsWith('x-dlq-')).map(([name, value]) => `${name}: ${value}`).join('\n');
    const done = await ask({
      title: 'Edit and replay',
      wide: true,
      act: 'Publish the edited event',
      body: [
        field('Payload', payload),
        el('div', { class: 'fields' }, field('Key', key), field('Headers, one per line', headers)),
        banner('', 'warn', `Every group of ${topic} gets the new event. Its header x-replayed-edited tells it apart from the original.`),
      ],
      done: async () => {
        if (payload.value.trim() === '') throw new Error('The payload is empty.');
        const parts = [`"partition":${letter.partition}`, `"offset":${letter.offset}`, `"key":${key.value === '' ? 'null' : JSON.stringify(key.value)}`, `"headers":${JSON.stringify(headersOf(headers.value))}`, `"payload":${payload.value}`];
        const told = /** @type {any} */ (await send('POST', `/dead-letters/${part(topic)}/replay`, `{"edited":[{${parts.join(',')}}]}`));
        const first = told.published[0];
        toast('The edited event is published, on disk.', first ? { link: ['Show it', eventLink(topic, first[0], first[1])] } : {});
      },
    });
    if (done) {
      closeDrawer();
      set({ l: null });
      await again();
    }
  }
  await again();
  const [, p, o] = /^(\d+)[:/](\d+)$/.exec(query.get('l') ?? '') ?? [];
  const wanted = p && o ? await fetchEvent(dlq, Number(p), Number(o)) : null;
  if (wanted) await show(wanted);
}
