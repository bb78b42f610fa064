// The drawer of an event: its content, its causes, and how far each group and handler is with it.

import { BUS, address, errorText, get, lines, part } from '../api.js';
import { banner } from './banner.js';
import { groupLink } from './links.js';
import { curl, missing, state } from '../state.js';
import { button, copy, el, fact, fill, grid, link, muted, region, save } from './dom.js';
import { drawer, toast } from './dialog.js';
import { icon } from './icons.js';
import { envelope, tree } from './json.js';
import { sign } from './sign.js';
import { time } from './time.js';

/** @typedef {import('../types.js').Story} Story */
/** @typedef {import('./json.js').Envelope} Envelope */

/** The page of a topic with this event open. @param {string} topic @param {number} partition @param {number} offset */
export const eventLink = (topic, partition, offset) => `#/topics/${part(topic)}?e=${partition}:${offset}`;

/** The trace of an event. @param {string} id @param {string} topic */
export const traceLink = (id, topic) => `#/trace/${part(id)}?topic=${part(topic)}`;

/** @param {string} topic @param {number} partition @param {number} offset @returns {Promise<Envelope | null>} */
export async function fetchEvent(topic, partition, offset) {
  const page = await lines(`/topics/${part(topic)}/events`, { query: { partition, from: offset, limit: 1 } });
  const found = page.lines[0] ? envelope(page.lines[0]) : null;
  return found && found.offset === offset ? found : null;
}

/**
 * @param {string} topic @param {number} partition @param {number} offset
 * @param {{ go: (offset: number) => void, end: () => void, again: (event: Envelope) => void }} acts
 */
export async function showEvent(topic, partition, offset, acts) {
  const place = `${topic} · ${partition}/${offset}`;
  const step = (/** @type {string} */ name, /** @type {string} */ label, /** @type {number} */ to) =>
    el('button', { type: 'button', class: 'btn icon', 'aria-label': label, title: label, disabled: to < 1, onclick: () => acts.go(to) }, icon(name));
  const tools = [step('left', 'Previous event', offset - 1), step('right', 'Next event', offset + 1)];
  const box = drawer(place, tools, [], acts.end);
  const inside = box.querySelector('.content');
  if (!inside) return;
  let event;
  try {
    event = await fetchEvent(topic, partition, offset);
  } catch (error) {
    fill(inside, el('p', { class: 'banner bad' }, errorText(error)));
    return;
  }
  if (!event) {
    fill(inside, banner('', 'warn', `There is no event at offset ${offset}: it is not published yet, or retention or compaction has removed it.`));
    return;
  }
  const found = event;
  const story = el('div');
  story.className = 'stack';
  // An event without its content can be neither copied nor published again.
  const content = missing('subscribe') === null ? [payload(found), copies(found, acts)]
    : [banner('calm', 'key', 'Payload, key and header values are withheld: your token has the scope inspect and not subscribe.')];
  fill(inside, facts(found), ...content, el('section', null, el('h3', null, 'How far everybody is'), story));
  fill(story, muted('Looking…'));
  try {
    const told = await get(`/events/${part(found.id)}`, { query: { topic } });
    fill(story, standing(/** @type {Story} */ (told), topic));
  } catch (error) {
    fill(story, muted(errorText(error)));
  }
}

/** @param {Envelope} event */
function facts(event) {
  return el('section', null, el('dl', { class: 'facts' },
    fact('Published', time(event.ts)),
    fact('Id', el('code', null, event.id)),
    event.key === null ? [] : fact('Key', el('code', null, event.key)),
    event.priority === null ? [] : fact('Priority', event.priority),
    event.headers.length === 0 ? [] : fact('Headers', el('dl', { class: 'facts' },
      event.headers.flatMap(([name, value]) => [el('dt', { class: 'mono' }, name), el('dd', { class: 'mono' }, value)])))));
}

/** @param {Envelope} event */
function payload(event) {
  const shown = el('div', null, tree(event.payload));
  let raw = false;
  const flip = el('button', { type: 'button', class: 'btn small', 'aria-pressed': 'false' }, 'Raw');
  flip.addEventListener('click', () => {
    raw = !raw;
    flip.setAttribute('aria-pressed', String(raw));
    fill(shown, raw ? region('json', 'Payload', el('pre', null, event.payload)) : tree(event.payload));
  });
  const take = button('btn small', 'Copy', async () => {
    await copy(event.payload);
    toast('The payload is copied, byte for byte');
  });
  const load = button('btn small', 'Download', () => save(`${event.topic}-${event.partition}-${event.offset}.json`, event.payload));
  return el('section', null, el('div', { class: 'bar' }, el('h3', { class: 'grow' }, 'Payload'), flip, take, load), shown);
}

/** @param {Envelope} event @param {{ again: (event: Envelope) => void }} acts */
function copies(event, acts) {
  const quoted = (/** @type {string} */ text) => `'${text.replaceAll("'", "'\\''")}'`;
  const body = () => {
    const headers = Object.fromEntries(event.headers.filter(([name]) => !name.startsWith('x-dlq-')));
    const key = event.key === null ? '' : `"key":${JSON.stringify(event.key)},`;
    const more = Object.keys(headers).length === 0 ? '' : `"headers":${JSON.stringify(headers)},`;
    return `{${key}${more}"payload":${event.payload}}`;
  };
  const to = address(`/topics/${part(event.topic)}/events`).href;
  const space = state.namespace === 'default' ? '' : ` --namespace ${state.namespace}`;
  const literal = (/** @type {unknown} */ value) => JSON.stringify(value);
  /** @type {Record<string, () => string>} */
  const forms = {
    curl: () => `${curl()} ${quoted(to)} -d ${quoted(body())}`,
    'command line': () => `millrace pub ${event.topic} ${quoted(event.payload)}${event.key === null ? '' : ` --key ${quoted(event.key)}`}${space} --url ${BUS}`,
    JavaScript: () => `await bus.publish(${literal(event.topic)}, ${event.payload}${event.key === null ? '' : `, ${literal(event.key)}`});`,
    Python: () => `requests.post(${literal(to)}, data=${literal(body())}, headers={"content-type": "application/json"}).raise_for_status()`,
    Rust: () => `client.publish(${literal(event.topic)}, serde_json::value::RawValue::from_string(${literal(event.payload)}.into())?).await?;`,
    NDJSON: () => event.raw,
    'link to this event': () => new URL(eventLink(event.topic, event.partition, event.offset), location.href).href,
  };
  const choice = el('select', { 'aria-label': 'Copy this event as' }, el('option', { value: '' }, 'Copy as…'), Object.keys(forms).map((name) => el('option', null, name)));
  choice.addEventListener('change', async () => {
    const made = forms[choice.value]?.();
    choice.value = '';
    if (made === undefined) return;
    await copy(made);
    toast('Copied');
  });
  return el('div', { class: 'bar' }, button('btn', 'Publish again…', () => acts.again(event)), choice,
    el('a', { class: 'btn', href: traceLink(event.id, event.topic) }, 'What it caused'));
}

/** @param {Story} story @param {string} topic */
function standing(story, topic) {
  const row = (/** @type {Node | string} */ who, /** @type {string} */ how, /** @type {string[]} */ rest) =>
    el('tr', null, el('td', null, who), el('td', null, sign(how)), el('td', { class: 'muted' }, rest.filter(Boolean).join(' · ')));
  const rows = [
    ...story.groups.map((one) => row(link(groupLink(topic, one.group), one.group), one.state,
      [one.attempts > 1 ? `attempt ${one.attempts}` : '', one.agent ?? (one.connection ? `connection ${one.connection}` : ''), one.reason ?? ''])),
    ...story.claims.map((one) => row(`handler ${one.handler ?? ''}`, one.status ?? '', [(one.attempts ?? 0) > 1 ? `attempt ${one.attempts}` : '', one.error ?? ''])),
  ];
  const none = muted('No group and no handler has to do with this event.');
  const lineage = story.lineage;
  const id = (/** @type {string} */ of) => el('code', null, of);
  return [
    rows.length === 0 ? none : region('scroll card', 'Groups and handlers', grid('Groups and handlers of this event', ['Who', 'State', 'More'], rows)),
    story.letters.length === 0 ? '' : el('p', null, 'Its letters: ', story.letters.flatMap((one) => [link(eventLink(one.dlq, one.partition, one.offset), `${one.partition}/${one.offset}`), one.reason ? ` (${one.reason}) ` : ' '])),
    story.replays.length === 0 ? '' : el('p', null, 'Published again as: ', story.replays.flatMap((one) => [link(eventLink(one.topic, one.partition, one.offset), `${one.partition}/${one.offset}`), ' '])),
    lineage.causation || lineage.root || lineage.correlation ? el('dl', { class: 'facts' },
      lineage.causation ? fact('Caused by', id(lineage.causation)) : [],
      lineage.root ? fact('Root', id(lineage.root)) : [],
      lineage.correlation ? fact('Correlation', id(lineage.correlation)) : []) : '',
    story.traceId ? muted('Trace ', id(story.traceId)) : '',
  ];
}

