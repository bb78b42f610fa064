// The events of a topic: the newest first, a search with a cursor, and a tail that shows them as they come.

import { address, errorText, get, lines, part, Problem, stream } from '../api.js';
import { closeDrawer } from '../parts/dialog.js';
import { button, el, faint, fill, link, muted, panel, save, say } from '../parts/dom.js';
import { showEvent } from '../parts/event.js';
import { icon } from '../parts/icons.js';
import { envelope } from '../parts/json.js';
import { poll } from '../parts/poll.js';
import { publish } from '../parts/publish.js';
import { longTable } from '../parts/long-table.js';
import { count, time } from '../parts/time.js';
import { missing } from '../state.js';

/** @typedef {import('../parts/json.js').Envelope} Envelope */

const PAGE = 200;
/** Rows that a tail keeps. */
const RING = 5000;
const SCAN = 20_000;

/** @param {HTMLElement} body @param {import('../types.js').Topic} doc @param {import('../main.js').Context} context @returns {(query: URLSearchParams) => boolean} */
export function events(body, doc, context) {
  const { signal, set } = context;
  const topic = doc.topic;
  const many = (doc.streams?.length ?? 1) > 1;
  let query = context.query;
  /** @type {Envelope[]} */
  let rows = [];
  /** Events that came while the list is not at its top, or is paused. @type {Envelope[]} */
  let waiting = [];
  let older = '';
  /** The next offset of each partition: what is below is known to the list. @type {Map<number, number>} */
  let next = new Map();
  /** The list is read from the start. */
  let loaded = Promise.resolve();
  let scanned = 0;
  let more = false;
  let open = query.get('e') ?? '';
  /** @type {AbortController | null} */
  let tailing = null;

  // A token that may not see content may not search for it either.
  const withheld = missing('subscribe');
  const input = (/** @type {string} */ name, /** @type {string} */ label, /** @type {string} */ hint) =>
    el('input', { type: 'search', 'aria-label': label, placeholder: hint, value: withheld ? '' : query.get(name) ?? '', 'data-name': name, disabled: withheld !== null, title: withheld });
  const fields = {
    contains: input('contains', 'Text in payload, key or headers', 'Text'),
    key: input('key', 'Key', 'Key'),
    header: input('header', 'Header', 'header:value'),
    path: input('path', 'Value in the payload', '$.path:value'),
  };
  const partition = el('select', { 'aria-label': 'Partition', hidden: !many }, el('option', { value: 'all' }, 'All partitions'),
    (doc.streams ?? []).map((one) => el('option', { value: one.partition, selected: query.get('p') === String(one.partition) }, `Partition ${one.partition}`)));
  const at = el('input', { type: 'text', 'aria-label': 'Up to this time or offset', placeholder: many ? 'Time, 2026-11-18 20:00' : 'Time or offset', value: query.get('at') ?? '' });
  const live = el('button', { type: 'button', class: 'btn', 'aria-pressed': 'false' }, icon('play'), 'Live');
  const fresh = el('button', { type: 'button', class: 'btn primary small', hidden: true });
  const foot = el('div', { class: 'more' });
  const list = longTable({
    caption: `Events of ${topic}, the newest first`,
    isOn: (/** @type {Envelope} */ row) => open === `${row.partition}:${row.offset}`,
    open: (row) => go(`${row.partition}:${row.offset}`),
    columns: [
      { name: 'ts', label: 'Published', width: '222px', cell: (row) => time(row.ts) },
      { name: 'offset', label: many ? 'Place' : 'Offset', width: '110px', class: 'mono', cell: (row) => link(`#/topics/${part(topic)}?e=${row.partition}:${row.offset}`, many ? `${row.partition}/${row.offset}` : row.offset) },
      { name: 'key', label: 'Key', width: '150px', class: 'mono', cell: (row) => row.key ?? '' },
      { name: 'payload', label: 'Payload', class: 'preview', cell: (row) => (withheld ? faint('withheld') : row.payload.slice(0, 300)) },
    ],
  });
  const none = el('div', { class: 'teach', hidden: true });
  fill(body, panel(
    el('form', { class: 'title', role: 'search', 'aria-label': 'Events', onsubmit: (/** @type {Event} */ event) => { event.preventDefault(); search(); } },
      fields.contains, fields.key, fields.header, fields.path, partition, at, el('button', { class: 'btn' }, icon('search'), 'Search'), el('span', { class: 'grow' }),
      fresh, live, button('btn', 'Export', () => void exportAll())),
    list.box, none, foot));

  const filters = () => Object.fromEntries(Object.entries(fields).map(([name, field]) => [name, field.value.trim()]));
  const isFiltered = () => Object.values(filters()).some((value) => value !== '');
  const place = () => ({ partition: many ? partition.value : 0 });

  /** Where to begin: a time, or an offset of one partition. */
  function beginning() {
    const text = at.value.trim();
    if (text === '') return {};
    if (/^\d{1,11}$/.test(text) && place().partition !== 'all') return { from: text };
    const ms = /^\d{12,}$/.test(text) ? Number(text) : Date.parse(text);
    if (Number.isNaN(ms)) throw new Error('Give a time such as 2026-11-18 20:00, or an offset of one partition.');
    return { ts: ms + 1 };
  }

  function draw() {
    list.show(rows);
    const empty = rows.length === 0;
    list.box.hidden = empty;
    none.hidden = !empty;
    if (empty) {
      fill(none, isFiltered() || at.value
        ? el('p', null, `Nothing was found among ${count(scanned)} events.`)
        : el('div', null, el('h2', null, 'No events'), muted('What is published to this topic appears here at once.')));
    }
    fresh.hidden = waiting.length === 0;
    fill(fresh, `${count(waiting.length)} new`);
    const looked = isFiltered() ? `Looked at ${count(scanned)} events, ${count(rows.length)} found. ` : `${count(rows.length)} events. `;
    fill(foot, looked, more ? el('button', { type: 'button', class: 'btn small', onclick: () => void load(true) }, isFiltered() ? 'Look further back' : 'Older events') : empty ? '' : 'That is all.');
  }

  /** Where the partitions end now: what comes behind is new to the list. */
  async function ends() {
    const now = /** @type {import('../types.js').Topic} */ (await get(`/topics/${part(topic)}`, { signal }));
    const wanted = (now.streams ?? []).filter((one) => place().partition === 'all' || Number(place().partition) === one.partition);
    return new Map(wanted.map((one) => [one.partition, Math.max(one.next, 1)]));
  }

  /** Everything of a partition below this offset has been seen. @param {number} partition @param {number} offset */
  const seen = (partition, offset) => next.set(partition, Math.max(next.get(partition) ?? 1, offset));

  /** @param {boolean} onwards */
  async function load(onwards) {
    try {
      const begin = onwards ? { cursor: older } : beginning();
      const end = onwards ? next : await ends();
      const page = await lines(`/topics/${part(topic)}/events`, { signal, query: { order: 'desc', limit: PAGE, scan: SCAN, ...place(), ...filters(), ...begin } });
      const found = page.lines.map(envelope);
      if (!onwards) {
        rows = [];
        waiting = [];
        scanned = 0;
        next = end;
        if (at.value.trim() === '') for (const row of found) seen(row.partition, row.offset + 1);
      }
      rows = [...rows, ...found];
      scanned += Number(page.headers.get('millrace-scanned') ?? 0);
      older = page.headers.get('millrace-cursor') ?? '';
      more = page.headers.get('millrace-more') === 'true';
      draw();
      say(`${rows.length} events`);
    } catch (error) {
      if (signal.aborted) return;
      fail(error);
    }
  }
  /** @param {unknown} error */
  const fail = (error) => fill(foot, el('span', { class: 'state bad' }, icon('bad'), errorText(error)));

  function search() {
    set({ ...filters(), at: at.value.trim(), p: many && partition.value !== 'all' ? partition.value : null });
    loaded = load(false);
    if (tailing) start();
  }

  /** Puts what came on top, unless the reader is further down. @param {Envelope[]} found */
  function arrive(found) {
    const unknown = found.filter((row) => row.offset >= (next.get(row.partition) ?? 1)).reverse();
    if (unknown.length === 0) return;
    for (const row of unknown) seen(row.partition, row.offset + 1);
    if (list.box.scrollTop > 40 || open !== '') waiting = [...unknown, ...waiting].slice(0, RING);
    else rows = [...unknown, ...rows].slice(0, RING);
    draw();
  }

  fresh.addEventListener('click', () => {
    rows = [...waiting, ...rows].slice(0, RING);
    waiting = [];
    list.box.scrollTop = 0;
    draw();
  });

  /** Fetches what was published since the list was last told; false if there is more than it keeps. @param {AbortSignal} signal */
  async function catchUp(signal) {
    for (let pages = 0; pages * PAGE < RING; pages += 1) {
      const cursor = [...next].map(([partition, offset]) => `${partition}:${offset}`).join(',');
      if (cursor === '') return true;
      const page = await lines(`/topics/${part(topic)}/events`, { signal, query: { order: 'asc', limit: PAGE, cursor, ...place(), ...filters() } });
      arrive(page.lines.map(envelope));
      for (const one of (page.headers.get('millrace-cursor') ?? '').split(',').filter(Boolean)) {
        const [partition = 0, offset = 1] = one.split(':').map(Number);
        seen(partition, offset);
      }
      if (page.headers.get('millrace-more') !== 'true') return true;
    }
    return false;
  }

  // Without the tail: looks for newer events now and then.
  poll(signal, 2000, async () => {
    if (tailing || at.value.trim() !== '') return;
    try {
      await catchUp(signal);
    } catch (error) {
      if (!(error instanceof Problem) && !signal.aborted) throw error;
    }
  });

  function start() {
    tailing?.abort();
    const controller = new AbortController();
    tailing = controller;
    live.setAttribute('aria-pressed', 'true');
    /** @type {Envelope[]} */
    let came = [];
    let frame = 0;
    // The tail begins at the end: what was published before is fetched once it is open, and comes first.
    let caughtUp = at.value.trim() !== '';
    const begun = async () => {
      try {
        await loaded;
        if (!caughtUp && !(await catchUp(controller.signal))) say('Events were left out');
      } catch (error) {
        if (controller.signal.aborted) return;
        fail(error);
      }
      caughtUp = true;
      flush();
    };
    const flush = () => {
      frame = 0;
      const now = came;
      came = [];
      arrive(now);
    };
    const each = (/** @type {string[]} */ parts) => {
      for (const line of parts) {
        if (line.startsWith('{"beat":')) continue;
        const skipped = /^\{"skipped":(\d+)\}$/.exec(line);
        if (skipped) say(`${skipped[1]} events were left out`);
        else came.push(envelope(line));
      }
      if (came.length > 0 && frame === 0 && caughtUp) frame = requestAnimationFrame(flush);
    };
    const query = { ...filters(), ...(many && partition.value !== 'all' ? { partition: partition.value } : {}) };
    stream(`/topics/${part(topic)}/tail`, { signal: controller.signal, query }, () => void begun(), each)
      .catch((error) => {
        if (!controller.signal.aborted) fail(error);
      })
      .finally(() => {
        if (tailing === controller) stop();
      });
  }
  function stop() {
    tailing?.abort();
    tailing = null;
    live.setAttribute('aria-pressed', 'false');
  }
  live.addEventListener('click', () => (tailing ? stop() : start()));
  signal.addEventListener('abort', () => tailing?.abort());

  async function exportAll() {
    const wanted = address(`/topics/${part(topic)}/events`, { ...place(), ...filters(), order: 'desc', limit: 10_000, scan: 100_000 });
    const page = await lines(`/topics/${part(topic)}/events`, { signal, query: Object.fromEntries(wanted.searchParams) });
    save(`${topic}.ndjson`, `${page.lines.join('\n')}\n`);
  }

  /** Opens an event by its place, or closes the drawer. @param {string} place @param {boolean} [told] the address says so already */
  function go(place, told = false) {
    open = place;
    if (!told) set({ e: place || null }, false);
    draw();
    if (place === '') return closeDrawer();
    const [, p, o] = /^(\d+)[:/](\d+)$/.exec(place) ?? [];
    if (!p || !o) return closeDrawer();
    void showEvent(topic, Number(p), Number(o), {
      go: (offset) => go(`${p}:${offset}`),
      end: () => go(''),
      again: (event) => void publish(topic, event),
    });
  }

  loaded = load(false);
  void loaded.then(() => {
    if (open) go(open, true);
  });
  return (changed) => {
    const place = changed.get('e') ?? '';
    query = changed;
    if (place !== open) go(place, true);
    return true;
  };
}
