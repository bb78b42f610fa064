// JSON as it was written: cut by our own tokenizer, never through `JSON.parse`, so that every digit stays.

import { el, fill, muted, region } from './dom.js';

const PREVIEW = 64 * 1024;
/** Members of one object that are shown before they are asked for. */
const KIDS = 200;

/** The end of the value that begins at `from`. @param {string} text @param {number} from */
export function endOf(text, from) {
  let depth = 0;
  let at = from;
  for (; at < text.length; at++) {
    const c = text.charCodeAt(at);
    if (c === 34) {
      at = endOfString(text, at) - 1;
      if (depth === 0) return at + 1;
    } else if (c === 123 || c === 91) depth += 1;
    else if (c === 125 || c === 93) {
      if (depth === 0) return at;
      depth -= 1;
      if (depth === 0) return at + 1;
    } else if (depth === 0 && (c === 44 || c <= 32)) return at;
  }
  return at;
}

/** @param {string} text @param {number} from the opening quote */
function endOfString(text, from) {
  for (let at = from + 1; at < text.length; at++) {
    const c = text.charCodeAt(at);
    if (c === 92) at += 1;
    else if (c === 34) return at + 1;
  }
  return text.length;
}

/** @param {string} text @param {number} at */
function skip(text, at) {
  while (at < text.length && (text.charCodeAt(at) <= 32 || text[at] === ',' || text[at] === ':')) at += 1;
  return at;
}

/** The members of an object, or the elements of an array, as their author wrote them. @param {string} text @returns {{ name: string | null, raw: string }[]} */
export function members(text) {
  const found = [];
  const trimmed = text.trim();
  const isObject = trimmed.startsWith('{');
  let at = skip(trimmed, 1);
  while (at < trimmed.length - 1) {
    let name = null;
    if (isObject) {
      const end = endOfString(trimmed, at);
      name = trimmed.slice(at, end);
      at = skip(trimmed, end);
    }
    const end = endOf(trimmed, at);
    if (end <= at) break;
    found.push({ name, raw: trimmed.slice(at, end) });
    at = skip(trimmed, end);
  }
  return found;
}

/** What a string of JSON says. @param {string} raw */
export function textOf(raw) {
  try {
    const value = JSON.parse(raw);
    return typeof value === 'string' ? value : raw;
  } catch {
    return raw;
  }
}

/**
 * An envelope, cut into its members; the payload stays the text that it is.
 * @typedef {{ id: string, ts: number, topic: string, key: string | null, partition: number, offset: number,
 *   headers: [string, string][], payload: string, priority: string | null, raw: string }} Envelope
 * @param {string} raw @returns {Envelope}
 */
export function envelope(raw) {
  /** @type {Record<string, string>} */
  const found = {};
  for (const { name, raw: value } of members(raw)) if (name) found[textOf(name)] = value;
  const headers = found['headers'] ? members(found['headers']) : [];
  return {
    id: textOf(found['id'] ?? '""'),
    ts: Number(found['ts'] ?? 0),
    topic: textOf(found['topic'] ?? '""'),
    key: found['key'] === undefined ? null : textOf(found['key']),
    partition: Number(found['partition'] ?? 0),
    offset: Number(found['offset'] ?? 0),
    headers: headers.map(({ name, raw: value }) => [textOf(name ?? ''), textOf(value)]),
    payload: found['payload'] ?? 'null',
    priority: found['priority'] ?? null,
    raw,
  };
}

/** @param {string} raw */
function kind(raw) {
  const c = raw[0];
  return c === '"' ? 's' : c === '{' || c === '[' ? 'p' : c === 't' || c === 'f' || c === 'n' ? 'w' : 'n';
}

/** A tree that is made as it is opened. @param {string} raw @param {number} [open] levels that are open at first @param {string} [label] */
export function tree(raw, open = raw.length < 2000 ? 6 : 2, label = 'Payload') {
  const value = raw.trim();
  if (value.length > PREVIEW) return large(value);
  return region('json', label, node(null, value, open, true));
}

/** @param {string} value */
function large(value) {
  const shown = el('pre', null, value.slice(0, PREVIEW));
  const note = muted(`The first 64 KiB of ${value.length.toLocaleString('en-US')} characters. `);
  const all = el('button', { type: 'button', class: 'btn small', onclick: () => { fill(shown, value); note.remove(); } }, 'Show all');
  note.append(all);
  return region('json', 'Payload', shown, note);
}

/** @param {string | null} name @param {string} raw @param {number} open @param {boolean} last @returns {HTMLElement} */
function node(name, raw, open, last) {
  const label = name === null ? '' : el('span', { class: 'k' }, name);
  const colon = name === null ? '' : el('span', { class: 'p' }, ': ');
  const comma = last ? '' : el('span', { class: 'p' }, ',');
  const sort = kind(raw);
  if (sort !== 'p') return el('div', null, label, colon, el('span', { class: sort }, raw), comma);
  const [begin, end] = raw[0] === '{' ? ['{', '}'] : ['[', ']'];
  const inside = members(raw);
  if (inside.length === 0) return el('div', null, label, colon, el('span', { class: 'p' }, begin + end), comma);
  const kids = el('div', { class: 'kids' });
  const tail = el('div', { class: 'p' }, end, last ? '' : ',');
  const hint = el('span', { class: 'p' });
  const toggle = el('button', { type: 'button', 'aria-expanded': 'false', onclick: () => show(kids.childElementCount === 0) }, label, colon, el('span', { class: 'p' }, begin), hint);
  /** @param {boolean} opened */
  const show = (opened) => {
    toggle.setAttribute('aria-expanded', String(opened));
    const words = inside.length === 1 ? (begin === '{' ? '1 member' : '1 element') : `${inside.length} ${begin === '{' ? 'members' : 'elements'}`;
    fill(hint, opened ? '' : ` ${words} ${end}${last ? '' : ','}`);
    tail.hidden = !opened;
    kids.hidden = !opened;
    if (!opened) return void fill(kids);
    const make = (/** @type {number} */ from, /** @type {number} */ to) =>
      inside.slice(from, to).map((each, at) => node(each.name, each.raw, open - 1, from + at === inside.length - 1));
    fill(kids, make(0, KIDS));
    if (inside.length > KIDS) {
      const rest = el('button', { type: 'button', onclick: () => { rest.remove(); kids.append(...make(KIDS, inside.length)); } }, `… ${inside.length - KIDS} more`);
      kids.append(rest);
    }
  };
  show(open > 0);
  return el('div', null, toggle, kids, tail);
}

/** The same text with line breaks, for editing and comparing: nothing but white space changes. @param {string} raw @param {number} [depth] @returns {string} */
export function pretty(raw, depth = 0) {
  const value = raw.trim();
  if (kind(value) !== 'p' || value.length > PREVIEW * 4 || depth > 100) return value;
  const inside = members(value);
  if (inside.length === 0) return value[0] === '{' ? '{}' : '[]';
  const pad = '  '.repeat(depth + 1);
  const rows = inside.map((each) => `${pad}${each.name === null ? '' : `${each.name}: `}${pretty(each.raw, depth + 1)}`);
  const [begin, end] = value[0] === '{' ? ['{', '}'] : ['[', ']'];
  return `${begin}\n${rows.join(',\n')}\n${'  '.repeat(depth)}${end}`;
}
