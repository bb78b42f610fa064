// A trace: what an event goes back to and what it caused, as a tree beside one axis of time.

import { get, part } from '../api.js';
import { WORDS, asText, endOf, merge, rows, visible } from '../parts/causes.js';
import { field, toast } from '../parts/dialog.js';
import { badge, button, copy, crumbs, el, faint, fill, head, link, panel, title } from '../parts/dom.js';
import { eventLink } from '../parts/event.js';
import { icon } from '../parts/icons.js';
import { groupLink } from '../parts/links.js';
import { sign } from '../parts/sign.js';
import { longTable } from '../parts/long-table.js';
import { count, span, timeText } from '../parts/time.js';
import { axis } from '../parts/waterfall.js';

/** @typedef {import('../types.js').Trace} Trace */
/** @typedef {import('../parts/causes.js').Row} Row */

/** Nodes that are fetched before the page asks whether to go on. */
const NODES_AT_ONCE = 5000;
/** Marks of attempts on a bar; behind that many the number says it. */
const MARKS_MAX = 12;
/** @type {Record<string, string>} */
const ICONS = { event: 'topics', message: 'right', delivery: 'person', claim: 'jobs', timer: 'clock', schedule: 'clock', letter: 'letters', replay: 'play' };

/** @param {string[]} names @returns {import('../main.js').Page} */
export function page(names) {
  return {
    title: names[1] ? `Trace of ${names[1]}` : 'Trace',
    open: (context) => {
      const id = names[1] ?? context.query.get('id');
      return id ? show(id, context) : ask(context.root);
    },
  };
}

/** @param {HTMLElement} root */
function ask(root) {
  const id = el('input', { type: 'text', required: true, spellcheck: 'false', autocomplete: 'off' });
  const form = el('form', { class: 'teach', onsubmit: (/** @type {Event} */ event) => { event.preventDefault(); location.hash = `#/trace/${part(id.value.trim())}`; } },
    el('p', null, 'From any event, dead letter, message or timer: what it goes back to, and everything that followed from it over groups, handlers, schedules, letters and the loop.'),
    field('Id', id, 'Of an event, a letter, a message of the loop or a timer.'),
    el('div', { class: 'acts' }, el('button', { class: 'btn primary' }, 'Show its trace')));
  fill(root, head(title('Trace')), panel(form));
}

/** @param {string} id @param {import('../main.js').Context} context */
async function show(id, { root, query, signal, set }) {
  /** @type {Trace['nodes']} */
  let nodes = [];
  /** @type {Row[]} */
  let all = [];
  /** @type {Set<string>} */
  const collapsed = new Set();
  let failedOnly = query.get('failed') === '1';
  let fold = query.get('idle') !== '1';
  let next = '';
  let line = axis([], fold);

  const sub = el('p', { class: 'sub' });
  const note = el('div', { class: 'more', hidden: true });
  const scale = el('div', { class: 'axis', 'aria-hidden': 'true' });
  const press = (/** @type {string} */ label, /** @type {boolean} */ on, /** @type {(on: boolean) => void} */ act) => {
    const made = el('button', { type: 'button', class: 'btn small', 'aria-pressed': String(on) }, label);
    made.addEventListener('click', () => {
      on = !on;
      made.setAttribute('aria-pressed', String(on));
      act(on);
    });
    return made;
  };
  const table = longTable({
    caption: `Trace of ${id}`,
    open: (/** @type {Row} */ row) => { const to = linkOf(row); if (to) location.hash = to; },
    isOn: (row) => row.node.id === id,
    columns: [
      { name: 'what', label: 'What', width: '44%', cell: (row) => nameCell(row, collapsed, id, draw) },
      { name: 'state', label: 'State', width: '168px', cell: (row) => el('span', { title: row.node.error ?? null }, sign(row.node.status)) },
      { name: 'time', label: 'Time', cell: (row) => bar(row, line.place) },
    ],
  });
  table.box.classList.add('trace');
  const nothing = el('p', { class: 'teach muted', hidden: true }, 'Nothing in this trace has failed.');
  const tools = el('div', { class: 'title' },
    press('Failed only', failedOnly, (on) => { failedOnly = on; set({ failed: on ? '1' : null }); draw(); }),
    press('Fold idle time', fold, (on) => { fold = on; set({ idle: on ? null : '1' }); draw(); }),
    button('btn small', 'Collapse all', () => { for (const row of all) if (row.below > 0 && row.level > 0) collapsed.add(row.node.id); draw(); }),
    button('btn small', 'Expand all', () => { collapsed.clear(); draw(); }),
    el('span', { class: 'grow' }),
    button('btn small', 'Copy as text', async () => { await copy(asText(all)); toast('The trace is copied as text'); }),
    button('btn small', 'Copy as JSON', async () => { await copy(JSON.stringify(nodes, null, 2)); toast('The trace is copied as JSON'); }),
    button('btn small', 'Look again', () => void load('')));
  fill(root,
    head(el('div', { class: 'grow' },
      crumbs(link('#/trace', 'Trace')), el('h1', null, id), sub)),
    panel(tools, scale, table.box, nothing, note));

  function draw() {
    const shown = visible(all, collapsed, failedOnly);
    line = axis(shown.map(({ node }) => ({ at: node.at, end: endOf(node) })), fold);
    drawAxis(scale, line.segments);
    table.show(shown);
    table.box.hidden = shown.length === 0;
    nothing.hidden = shown.length > 0;
  }

  /** @param {string} after */
  async function load(after) {
    const most = (after ? nodes.length : 0) + NODES_AT_ONCE;
    let found = after ? nodes : [];
    /** @type {Trace | null} */
    let told = null;
    do {
      told = /** @type {Trace} */ (await get('/trace', { signal, query: { id, topic: query.get('topic'), after, limit: 2000 } }));
      found = merge(found, told.nodes);
      after = told.next ?? '';
    } while (after && found.length < most);
    const start = performance.now();
    nodes = found;
    next = after;
    all = rows(nodes);
    const failed = all.filter((row) => row.failed).length;
    const first = nodes[0];
    const ended = nodes.reduce((last, node) => Math.max(last, endOf(node)), 0);
    fill(sub, first ? `${count(nodes.length)} nodes over ${span(ended - first.at)}, from ${timeText(first.at)}${failed > 0 ? `; ${count(failed)} failed` : ''}` : '');
    fill(note, told.complete ? '' : next ? el('span', { class: 'grow' }, 'There is more.') : el('span', { class: 'grow' }, 'There may be more than the server looked at.'),
      next ? button('btn small', 'Load more', () => void load(next)) : '');
    note.hidden = told.complete;
    draw();
    // The table draws its rows in the next frame, which has been painted when the one behind it begins.
    requestAnimationFrame(() => requestAnimationFrame(() => performance.measure('trace drawn', { start, end: performance.now(), detail: nodes.length })));
  }
  await load('');
}

/** @param {Row} row */
function linkOf({ node }) {
  const place = node.place;
  if (node.what === 'delivery' && place) return groupLink(place.topic, node.type);
  return place ? eventLink(place.topic, place.partition, place.offset) : null;
}

/** @param {Row} row @param {Set<string>} collapsed @param {string} id @param {() => void} draw */
function nameCell(row, collapsed, id, draw) {
  const { node, level, below } = row;
  const shut = collapsed.has(node.id);
  const word = WORDS[node.what] ?? node.what;
  const flip = below === 0 ? el('span', { class: 'flip' }) : el('button', {
    type: 'button', class: 'flip', 'aria-expanded': String(!shut), 'aria-label': `${word} ${node.type}, ${count(below)} below`,
    onclick: () => { if (shut) collapsed.delete(node.id); else collapsed.add(node.id); draw(); },
  }, icon(shut ? 'right' : 'down', 12));
  const to = linkOf(row);
  const name = to ? link(to, node.type) : el('span', null, node.type);
  const more = [
    node.place && node.what !== 'delivery' && node.what !== 'claim' ? `${node.place.partition}/${node.place.offset}` : '',
    shut ? `${count(below)} below` : '',
    row.lost ? 'its cause is not here' : '',
    node.to ? `→ ${node.to}` : '',
    node.error ?? '',
  ].filter(Boolean).join(' · ');
  const cell = el('span', { class: 'node', title: node.id }, flip, icon(ICONS[node.what] ?? 'right'),
    el('span', { class: 'unseen' }, `level ${level + 1}, `), faint(word), name,
    node.id === id ? badge('accent', 'here') : '',
    more ? el('span', { class: 'muted clip' }, more) : '');
  // Deep chains stay within the column.
  cell.style.paddingLeft = `${Math.min(level, 12) * 16}px`;
  return cell;
}

/** @param {Row} row @param {(ts: number) => number} place */
function bar({ node, failed }, place) {
  const from = place(node.at);
  const to = place(endOf(node));
  const isOpen = node.what === 'delivery' && !node.endedAt;
  const stripe = el('span', { class: `stripe ${failed ? 'bad' : node.what} ${isOpen ? 'open' : ''}` });
  stripe.style.left = `${from * 100}%`;
  stripe.style.width = `${(to - from) * 100}%`;
  // A letter says how many attempts there were; they are the delivery's.
  const attempts = node.what === 'delivery' || node.what === 'claim' ? (node.attempts ?? 0) : 0;
  const marks = attempts > 1 ? Array.from({ length: Math.min(attempts, MARKS_MAX) }, (_, at) => {
    const mark = el('i');
    mark.style.left = `${(at / Math.max(1, Math.min(attempts, MARKS_MAX) - 1)) * 100}%`;
    return mark;
  }) : [];
  fill(stripe, marks);
  const waits = node.status === 'waiting' && node.endedAt ? `due ${timeText(node.endedAt)}` : '';
  const took = endOf(node) > node.at ? `took ${span(endOf(node) - node.at)}` : '';
  const words = [timeText(node.at), took, waits, attempts > 1 ? `${attempts} attempts` : ''].filter(Boolean).join(', ');
  const label = el('span', { class: 'took' }, [took.replace('took ', ''), attempts > 1 ? `×${attempts}` : ''].filter(Boolean).join(' '));
  if (to > 0.8) label.style.right = `${(1 - from) * 100 + 1}%`;
  else label.style.left = `${to * 100 + 1}%`;
  label.setAttribute('aria-hidden', 'true');
  return el('span', { class: 'lane', title: words }, stripe, label, el('span', { class: 'unseen' }, words));
}

/** @param {HTMLElement} box @param {import('../parts/waterfall.js').Segment[]} segments */
function drawAxis(box, segments) {
  fill(box, segments.map((segment) => {
    const made = el('span', { class: segment.idle ? 'idle' : null, title: segment.idle ? `idle for ${span(segment.to - segment.from)}` : null },
      segment.idle || segment.width > 0.08 ? span(segment.to - segment.from) : '');
    made.style.left = `${segment.x * 100}%`;
    made.style.width = `${segment.width * 100}%`;
    return made;
  }));
}
