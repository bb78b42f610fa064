// Two texts beside each other, line by line.

import { el } from './dom.js';

const LINES_MAX = 400;

/** Which lines of both texts belong together: the longest common part. @param {string[]} a @param {string[]} b */
export function common(a, b) {
  const table = Array.from({ length: a.length + 1 }, () => new Uint16Array(b.length + 1));
  const at = (/** @type {number} */ i, /** @type {number} */ j) => table[i]?.[j] ?? 0;
  for (let i = a.length - 1; i >= 0; i--) {
    for (let j = b.length - 1; j >= 0; j--) {
      const row = table[i];
      if (row) row[j] = a[i] === b[j] ? at(i + 1, j + 1) + 1 : Math.max(at(i + 1, j), at(i, j + 1));
    }
  }
  const left = new Set();
  const right = new Set();
  let i = 0;
  let j = 0;
  while (i < a.length && j < b.length) {
    if (a[i] === b[j]) {
      left.add(i++);
      right.add(j++);
    } else if (at(i + 1, j) >= at(i, j + 1)) i += 1;
    else j += 1;
  }
  return { left, right };
}

/** @param {string} before @param {string} after @param {[string, string]} names */
export function diff(before, after, names) {
  const [a, b] = [before.split('\n').slice(0, LINES_MAX), after.split('\n').slice(0, LINES_MAX)];
  const { left, right } = common(a, b);
  const side = (/** @type {string} */ name, /** @type {string[]} */ lines, /** @type {Set<number>} */ same, /** @type {string} */ tone, /** @type {string} */ sign) =>
    el('div', { class: 'json' }, el('div', { class: 'p' }, name), lines.map((line, at) => el('pre', { class: same.has(at) ? 'same' : tone }, `${same.has(at) ? ' ' : sign} ${line}`)));
  return el('div', { class: 'diff' }, side(names[0], a, left, 'gone', '−'), side(names[1], b, right, 'new', '+'));
}
