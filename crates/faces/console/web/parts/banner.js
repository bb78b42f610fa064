// A sentence that must not be missed.

import { el } from './dom.js';
import { icon } from './icons.js';

/** @param {string} tone `bad`, `calm`, or empty for a warning @param {string} sign @param {...import('./dom.js').Child} text */
export function banner(tone, sign, ...text) {
  return el('p', { class: `banner ${tone}` }, icon(sign), el('span', { class: 'grow' }, ...text));
}
