// How far something is, as an icon and a word.

import { el } from './dom.js';
import { icon } from './icons.js';

/** @type {Record<string, [string, string, string]>} */
const SIGNS = {
  waiting: ['clock', 'calm', 'waits'], inflight: ['play', 'warn', 'is being worked on'],
  done: ['good', 'good', 'done'], deadLettered: ['bad', 'bad', 'dead letter'],
  pending: ['clock', 'calm', 'waits'], claimed: ['play', 'warn', 'is being worked on'], acked: ['good', 'good', 'done'],
  discarded: ['close', 'calm', 'discarded'], lost: ['bad', 'bad', 'lost'], dead_lettered: ['bad', 'bad', 'dead letter'],
  kept: ['letters', 'bad', 'kept'], replayed: ['good', 'good', 'published again'], stored: ['good', 'calm', 'stored'],
  fired: ['good', 'calm', 'fired'], answered: ['good', 'good', 'answered'], routed: ['right', 'calm', 'passed on'],
  failed: ['bad', 'bad', 'failed'], refused: ['bad', 'bad', 'refused'], orphan: ['warn', 'warn', 'nobody waited'],
  faulty: ['bad', 'bad', 'not allowed'],
};

/** @param {string} of */
export function sign(of) {
  const [name, tone, word] = SIGNS[of] ?? ['clock', 'calm', of];
  return el('span', { class: `state ${tone}` }, icon(name), word);
}
