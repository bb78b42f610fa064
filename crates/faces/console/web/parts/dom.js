// Elements, made without any text that a browser would read as markup.

/** @typedef {Node | string | number | null | undefined | false} Child */

/**
 * @template {keyof HTMLElementTagNameMap} T
 * @param {T} tag
 * @param {Record<string, any> | null} [props] `class`, `on*` listeners, attributes; `false` and `null` leave one out
 * @param {...(Child | Child[])} children
 * @returns {HTMLElementTagNameMap[T]}
 */
export function el(tag, props, ...children) {
  const made = document.createElement(tag);
  set(made, props);
  add(made, children);
  return made;
}

/**
 * @param {string} tag
 * @param {Record<string, any> | null} [props]
 * @param {...Child} children
 * @returns {SVGElement}
 */
export function svg(tag, props, ...children) {
  const made = /** @type {SVGElement} */ (document.createElementNS('http://www.w3.org/2000/svg', tag));
  set(made, props);
  add(made, children);
  return made;
}

/** @param {Element} of @param {Record<string, any> | null | undefined} props */
function set(of, props) {
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === false || value === null || value === undefined) continue;
    if (name.startsWith('on')) of.addEventListener(name.slice(2), value);
    else if (name === 'value' && 'value' in of) of.value = value;
    else if (name === 'checked' && of instanceof HTMLInputElement) of.checked = value;
    else of.setAttribute(name, value === true ? '' : String(value));
  }
}

/** @param {Element} to @param {(Child | Child[])[]} children */
function add(to, children) {
  for (const child of children.flat()) {
    if (child === null || child === undefined || child === false) continue;
    to.append(child instanceof Node ? child : String(child));
  }
}

/** Puts these children in the place of all others. @param {Element} of @param {...(Child | Child[])} children */
export function fill(of, ...children) {
  of.replaceChildren();
  add(of, children);
  return of;
}

/** @param {string} name @param {string} label @param {() => void} act @param {Record<string, any>} [props] */
export function button(name, label, act, props = {}) {
  return el('button', { type: 'button', class: name, onclick: act, ...props }, label);
}

/** Says something to a screen reader, at most one message in 5 s. @param {string} text */
export function say(text) {
  const now = Date.now();
  if (now - said < 5000) return;
  said = now;
  const live = document.getElementById('say');
  if (live) live.textContent = text;
}
let said = 0;

/** Copies text, also where a page is not secure and the clipboard is missing. @param {string} text */
export async function copy(text) {
  if (navigator.clipboard && window.isSecureContext) {
    await navigator.clipboard.writeText(text);
    return;
  }
  const area = el('textarea', { class: 'unseen', 'aria-hidden': 'true' });
  area.value = text;
  document.body.append(area);
  area.select();
  document.execCommand('copy');
  area.remove();
}

/** Lets the browser save a text. @param {string} name @param {string | Blob} content */
export function save(name, content) {
  const blob = content instanceof Blob ? content : new Blob([content], { type: 'application/octet-stream' });
  const url = URL.createObjectURL(blob);
  const link = el('a', { href: url, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

/** The title of a page and what is said below it. @param {string} text @param {...Child} more */
export function title(text, ...more) {
  return el('div', { class: 'grow' }, el('h1', null, text), ...more);
}

/** A part of a page without a title. @param {...(Child | Child[])} content */
export function panel(...content) {
  return el('section', { class: 'card' }, ...content);
}

/** A part of a page with a title. @param {string} text @param {...Child} content */
export function card(text, ...content) {
  return panel(el('div', { class: 'title' }, el('h2', null, text)), ...content);
}

/** A link. @param {string} href @param {...Child} text */
export function link(href, ...text) {
  return el('a', { href }, ...text);
}

/** Below a list, shown only when it holds. @param {...Child} text */
export function remark(...text) {
  return el('p', { class: 'more', hidden: true }, ...text);
}

/** The first row of a page. @param {...Child} parts */
export function head(...parts) {
  return el('div', { class: 'head' }, ...parts);
}

/** @param {...Child} text */
export function muted(...text) {
  return el('p', { class: 'muted' }, ...text);
}

/** A muted word within a line. @param {...Child} text */
export function faint(...text) {
  return el('span', { class: 'muted' }, ...text);
}

/** @param {string} tone `good`, `warn`, `bad`, `accent` or nothing @param {Child} text @param {string | null} [told] when it is pointed at */
export function badge(tone, text, told = null) {
  return el('span', { class: `badge ${tone}`, title: told }, text);
}

/** An entry of a list of facts. @param {Child} name @param {Child | Child[]} value */
export function fact(name, value) {
  return [el('dt', null, name), el('dd', null, value)];
}

/** The way to a page, from the pages above it. @param {...Child} links */
export function crumbs(...links) {
  return el('nav', { class: 'crumbs', 'aria-label': 'Path' }, links.flatMap((one) => [one, '›']));
}

/** What an empty page says, in the place of its list. @param {string} name @param {string} text @param {...Child} more */
export function teach(name, text, ...more) {
  return el('div', { class: 'teach', hidden: true }, el('h2', null, name), el('p', null, text), ...more);
}

/** For a control that cannot be used for a reason. @param {string | null} why */
export const barred = (why) => ({ disabled: why !== null, title: why });

/** What can be scrolled, also with keys. @param {string} name @param {string} label @param {...Child} content */
export function region(name, label, ...content) {
  return el('div', { class: name, tabindex: '0', role: 'region', 'aria-label': label }, ...content);
}

/** A table that does not change. @param {string} caption @param {string[]} columns @param {Node[]} rows @param {boolean} [figures] all columns but the first are numbers */
export function grid(caption, columns, rows, figures = false) {
  const names = columns.map((name, at) => el('th', { scope: 'col', class: figures && at > 0 ? 'num' : null }, name));
  return el('table', null, el('caption', { class: 'unseen' }, caption), el('thead', null, el('tr', null, names)), el('tbody', null, rows));
}
