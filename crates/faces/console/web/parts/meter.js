// Figures: a tile, and a bar that says how much of a bound is taken.

import { el, faint } from './dom.js';

/** @param {string} name @param {number} value @param {number} max @param {(value: number) => string} show */
export function meter(name, value, max, show) {
  const share = max > 0 ? Math.min(1, value / max) : 0;
  const bar = el('i');
  bar.style.width = `${Math.max(share * 100, value > 0 ? 1 : 0)}%`;
  return el('div', { class: 'field' }, el('div', { class: 'bar' }, el('span', { class: 'grow' }, name), faint(`${show(value)} of ${show(max)}`)),
    el('div', { class: `meter ${share > 0.9 ? 'bad' : share > 0.7 ? 'warn' : ''}`, role: 'meter', 'aria-label': name, 'aria-valuenow': value, 'aria-valuemin': 0, 'aria-valuemax': max }, bar));
}

/** @param {string} name @param {import('./dom.js').Child | import('./dom.js').Child[]} value @param {string} note @param {string} [tone] @param {...Node} more */
export function tile(name, value, note, tone = '', ...more) {
  return el('div', { class: `tile ${tone}` }, el('h2', { class: 'label' }, name), el('div', { class: 'value' }, value), el('div', { class: 'note' }, note), ...more);
}
