// Durable handlers: what each owes, what it holds, what it gave up on.

import { Problem, get, part, send } from '../api.js';
import { ask, snippet, toast } from '../parts/dialog.js';
import { badge, card, crumbs, el, fill, head, link, panel, remark, teach, title } from '../parts/dom.js';
import { eventLink } from '../parts/event.js';
import { icon } from '../parts/icons.js';
import { topicLink } from '../parts/links.js';
import { tile } from '../parts/meter.js';
import { pages, press } from '../parts/pages.js';
import { poll } from '../parts/poll.js';
import { number, table } from '../parts/table.js';
import { count, countdown, many, span, time, until } from '../parts/time.js';
import { missing } from '../state.js';

/** @typedef {import('../types.js').Handler} Handler */
/** @typedef {import('../types.js').OpenClaim} OpenClaim */

const TEACH = `#[on_event(OrderPlaced)]
fn process_payment(ctx: &mut HandlerContext<OrderPlaced>) -> Result<()> { Ok(()) }

Session::open("sqlite:///app.db")?.run(handlers![process_payment], schedules![])`;

/** @param {string} handler */
export const handlerLink = (handler) => `#/handlers/${part(handler)}`;

/** @param {string[]} names @returns {import('../main.js').Page} */
export function page(names) {
  const handler = names[1];
  return {
    title: handler ?? 'Handlers',
    open: (context) => (handler ? one(handler, context) : all(context)),
  };
}

/** @param {import('../main.js').Context} context */
async function all({ root, signal }) {
  const list = table({
    caption: 'Durable handlers',
    sort: 'pending', descending: true,
    key: (/** @type {Handler} */ row) => row.handler,
    open: (row) => { location.hash = handlerLink(row.handler); },
    columns: [
      { name: 'handler', label: 'Handler', by: (row) => row.handler, cell: (row) => el('span', null, link(handlerLink(row.handler), row.handler), row.paused ? badge('warn', 'paused') : '') },
      { name: 'topic', label: 'Takes', by: (row) => row.topic, cell: (row) => link(topicLink(row.topic), row.topic) },
      number('pending', 'Pending'),
      number('claimed', 'Claimed'),
      number('waiting', 'Waiting'),
      { name: 'due', label: 'Next attempt', by: (row) => row.nextDue ?? Infinity, cell: (row) => countdown(row.nextDue) },
      { name: 'oldest', label: 'Oldest', class: 'num', by: (row) => row.oldestMs ?? 0, cell: (row) => (row.oldestMs == null ? '–' : span(row.oldestMs)) },
      { name: 'dead', label: 'Dead letters', class: 'num', by: (row) => row.deadLetters, cell: (row) => (row.deadLetters > 0 ? badge('bad', count(row.deadLetters)) : '0') },
      { name: 'sessions', label: 'Held by', class: 'num', by: (row) => row.sessions, cell: (row) => many(row.sessions, 'session') },
    ],
  });
  const more = remark('There are more handlers: GET /handlers lists all of them.');
  const none = teach('No handlers', 'A durable handler is a function of a Rust program that opens this store. It appears here when the program has run once.',
    snippet(TEACH), snippet('millrace events handlers --store sqlite:///FILE'));
  fill(root, head(title('Handlers')), panel(list.box, more, none));
  poll(signal, 2000, async () => {
    const found = /** @type {{ rows: Handler[], more: boolean }} */ (await pages('/handlers', 'handlers', { signal }));
    list.show(found.rows, none);
    more.hidden = !found.more;
  });
}

/** @param {string} handler @param {import('../main.js').Context} context */
async function one(handler, { root, query, signal, set }) {
  const path = `/handlers/${part(handler)}`;
  let only = query.get('state') ?? '';
  const tiles = el('div', { class: 'tiles' });
  const acts = el('div', { class: 'acts' });
  const banner = el('div', { class: 'banner', hidden: true });
  const claims = claimTable();
  const choice = el('select', { 'aria-label': 'State' }, [['', 'all'], ['claimed', 'claimed'], ['waiting', 'waiting'], ['free', 'free']].map(([value, label]) => el('option', { value, selected: value === only }, label ?? '')));
  const nothing = remark('Nothing is open.');
  const further = remark('Only the first 200 are shown.');
  const letters = el('div');
  fill(root,
    head(el('div', { class: 'grow' },
      crumbs(link('#/handlers', 'Handlers')), el('h1', null, handler)), acts),
    banner, tiles,
    panel(el('div', { class: 'title' }, el('h2', { class: 'grow' }, 'Open events'), choice), claims.box, nothing, further),
    card('Dead letters', letters));
  // A handler that is not there is not asked for again.
  const over = new AbortController();
  const again = poll(AbortSignal.any([signal, over.signal]), 1000, async () => {
    const [list, open] = await Promise.all([
      /** @type {Promise<import('../types.js').HandlerList>} */ (get('/handlers', { signal, query: { handler } })),
      /** @type {Promise<import('../types.js').OpenClaims>} */ (get(`${path}/claims`, { signal, query: { limit: 200, state: only } })).catch(unknown),
    ]);
    const [doc] = list.handlers;
    banner.hidden = doc !== undefined && !doc.paused;
    if (!doc || !open) {
      fill(banner, icon('warn'), 'There is no handler of this name: it was forgotten, or no program has run it yet.');
      over.abort();
      return;
    }
    fill(banner, icon('pause'), 'This handler is paused: it claims nothing in any session until it is resumed (millrace events resume-handler).');
    fill(tiles, tilesOf(doc));
    fill(acts, press('Forget…', missing('admin'), () => forget(handler, doc), () => void again(), 'danger'));
    claims.show(open.claims.map((claim) => ({ ...claim, topic: open.topic })), nothing);
    further.hidden = open.next == null;
  });
  choice.addEventListener('change', () => {
    only = choice.value;
    set({ state: only });
    void again();
  });
  lettersOf(handler, letters, signal, () => void again());
}

/** A handler that is not there is told on the page, and not as a failure. @param {unknown} error @returns {null} */
function unknown(error) {
  if (error instanceof Problem && error.status === 404) return null;
  throw error;
}

/** @param {Handler} doc */
function tilesOf(doc) {
  return [
    tile('Pending', count(doc.pending), `of ${doc.topic}`),
    tile('Claimed', count(doc.claimed), `by ${many(doc.sessions, 'session')}`),
    tile('Waiting', count(doc.waiting), doc.nextDue == null ? '' : `the first is due ${until(doc.nextDue)}`),
    tile('Oldest', doc.oldestMs == null ? '–' : span(doc.oldestMs), 'age of the oldest one'),
    tile('Dead letters', count(doc.deadLetters), '', doc.deadLetters > 0 ? 'bad' : ''),
  ];
}

/** @param {string} handler @param {Handler | undefined} doc */
async function forget(handler, doc) {
  await ask({
    title: `Forget ${handler}?`,
    act: 'Forget handler',
    danger: true,
    body: [el('p', null, `For a handler that will not come back: retention no longer waits for it. Its place in the log and ${count(doc?.claimed ?? 0)} claims are removed; ${count(doc?.pending ?? 0)} events are not handled by it. If a program still runs it, it begins anew with all retained events.`)],
    done: async () => {
      await send('DELETE', `/handlers/${part(handler)}`);
      toast(`${handler} is forgotten.`);
      location.hash = '#/handlers';
    },
  });
}

function claimTable() {
  const tones = /** @type {Record<string, string>} */ ({ claimed: 'accent', waiting: 'warn', free: '' });
  return table({
    caption: 'Events that the handler has open',
    key: (/** @type {any} */ row) => `${row.partition}:${row.offset}`,
    columns: [
      { name: 'event', label: 'Event', class: 'mono', cell: (row) => link(eventLink(row.topic, row.partition, row.offset), `${row.partition}/${row.offset}`) },
      { name: 'state', label: 'State', cell: (row) => badge(tones[row.state] ?? '', row.state) },
      { name: 'lease', label: 'Lease ends', class: 'num', cell: (row) => countdown(row.leaseUntil) },
      { name: 'due', label: 'Next attempt', class: 'num', cell: (row) => countdown(row.due) },
      { name: 'attempts', label: 'Failed', class: 'num', cell: (row) => (row.attempts > 0 ? badge('warn', row.attempts) : '0') },
      { name: 'session', label: 'Session', class: 'mono', cell: (row) => (row.session ? link(`#/sessions?s=${part(row.session)}`, row.session) : '–') },
      { name: 'ts', label: 'Published', cell: (row) => time(row.ts) },
      { name: 'error', label: 'Last error', cell: (row) => row.error ?? '' },
    ],
  });
}

/** @param {string} handler @param {HTMLElement} box @param {AbortSignal} signal @param {() => void} changed */
function lettersOf(handler, box, signal, changed) {
  /** @type {Set<string>} */
  let chosen = new Set();
  const whyReplay = missing('subscribe', 'publish');
  const whyDelete = missing('admin');
  const list = table({
    caption: 'Dead letters of the handler, the oldest first',
    key: (/** @type {any} */ row) => `${row.eventId}:${row.failedTs}`,
    columns: [
      { name: 'choose', label: '', cell: (row) => el('input', { type: 'checkbox', 'aria-label': `Choose the letter of ${row.eventId}`, checked: chosen.has(row.eventId), onchange: (/** @type {Event} */ event) => { if (/** @type {HTMLInputElement} */ (event.target).checked) chosen.add(row.eventId); else chosen.delete(row.eventId); drawActs(); } }) },
      { name: 'ts', label: 'Given up', cell: (row) => time(row.failedTs) },
      { name: 'event', label: 'Event', class: 'mono', cell: (row) => link(`#/event/${part(row.eventId)}`, row.eventId) },
      { name: 'attempts', label: 'Attempts', class: 'num', cell: (row) => count(row.attempts) },
      { name: 'error', label: 'Error', cell: (row) => row.error },
    ],
  });
  const acts = el('div', { class: 'more bar' });
  const none = remark('It gave up on nothing.');
  fill(box, list.box, none, acts);
  const drawActs = () => {
    const letters = many(chosen.size, 'letter');
    fill(acts, chosen.size === 0 ? 'Choose letters to replay or delete them.' : [
      press(`Replay ${letters}`, whyReplay, () => act('replay'), () => void again()),
      press(`Delete ${letters}…`, whyDelete, () => remove(letters), () => void again(), 'small danger'),
    ]);
  };
  /** @param {'replay' | 'delete'} what */
  async function act(what) {
    const done = /** @type {import('../types.js').HandlerLettersDone} */ (await send('POST', `/handlers/${part(handler)}/dead-letters/${what}`, { events: [...chosen] }));
    chosen = new Set();
    const refused = (done.refused ?? [])[0];
    toast(`${count(done.done.length)} ${what === 'replay' ? 'are with the handler again' : 'deleted'}.${refused ? ` ${refused.detail}` : ''}`, { bad: refused !== undefined });
    changed();
  }
  /** @param {string} letters */
  async function remove(letters) {
    await ask({ title: `Delete ${letters}?`, act: 'Delete for good', danger: true, body: [el('p', null, 'Nothing brings them back. The events themselves stay in their topic as long as it keeps them.')], done: () => act('delete') });
  }
  const again = poll(signal, 5000, async () => {
    const page = /** @type {import('../types.js').HandlerLetters} */ (await get('/dead-letters', { signal, query: { handler, limit: 100 } }));
    list.show(page.letters, none);
    acts.hidden = page.letters.length === 0;
    drawActs();
  });
}
