// Times, durations and numbers as people read them.

import { el, faint } from './dom.js';
import { state } from '../state.js';

const WHOLE = new Intl.NumberFormat('en-US');

/** 1,234,567 @param {number | bigint} value */
export const count = (value) => WHOLE.format(value).replaceAll(',', '\u2009');

/** 1 event, 2 events @param {number} value @param {string} word */
export const many = (value, word) => `${count(value)} ${word}${value === 1 ? '' : 's'}`;

/** A rate: few digits, none wasted. @param {number | null} perSecond */
export function rate(perSecond) {
  if (perSecond === null || !Number.isFinite(perSecond)) return '–';
  if (perSecond >= 100) return count(Math.round(perSecond));
  if (perSecond >= 10) return perSecond.toFixed(0);
  return perSecond === 0 ? '0' : perSecond.toFixed(1);
}

/** @param {number} bytes */
export function size(bytes) {
  if (bytes < 1024) return `${bytes} B`;
  const units = ['KiB', 'MiB', 'GiB', 'TiB'];
  let value = bytes;
  let unit = -1;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${value.toFixed(value < 10 ? 1 : 0)} ${units[unit]}`;
}

/** A span of time: `1.2 s`, `3 m`, `4 h`. @param {number} ms */
export function span(ms) {
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 10_000) return `${(ms / 1000).toFixed(1)} s`;
  if (ms < 120_000) return `${Math.round(ms / 1000)} s`;
  if (ms < 7_200_000) return `${Math.round(ms / 60_000)} m`;
  if (ms < 172_800_000) return `${Math.round(ms / 3_600_000)} h`;
  return `${Math.round(ms / 86_400_000)} d`;
}

/** @param {number} value @param {number} digits */
const two = (value, digits = 2) => String(value).padStart(digits, '0');

/** @param {Date} at @param {boolean} utc */
function clockText(at, utc) {
  const [y, mo, d] = utc ? [at.getUTCFullYear(), at.getUTCMonth(), at.getUTCDate()] : [at.getFullYear(), at.getMonth(), at.getDate()];
  const [h, mi, s] = utc ? [at.getUTCHours(), at.getUTCMinutes(), at.getUTCSeconds()] : [at.getHours(), at.getMinutes(), at.getSeconds()];
  return `${y}-${two(mo + 1)}-${two(d)} ${two(h)}:${two(mi)}:${two(s)}.${two(at.getUTCMilliseconds(), 3)}${utc ? ' UTC' : ''}`;
}

/** A point in time, in the mode of the clock. @param {number} ms */
export function timeText(ms) {
  if (state.clock === 'relative') return `${span(Math.max(0, Date.now() + state.skew - ms))} ago`;
  return clockText(new Date(ms), state.clock === 'utc');
}

/** A point in time that may be ahead, to the second, never relative. @param {number} ms */
export const moment = (ms) => clockText(new Date(ms), state.clock === 'utc').replace(/\.\d+/, '');

/** The same as an element that says the exact time when it is pointed at. @param {number | null | undefined} ms */
export function time(ms) {
  if (!ms) return faint('–');
  const iso = new Date(ms).toISOString();
  return el('time', { datetime: iso, title: iso, class: 'nowrap' }, timeText(ms));
}

/** How long it is until then, by the server's clock. @param {number} ms */
export function until(ms) {
  const left = ms - Date.now() - state.skew;
  return left > 0 ? `in ${span(left)}` : 'now';
}

/** The same as an element that says the exact time when it is pointed at. @param {number | null | undefined} ms */
export function countdown(ms) {
  if (!ms) return faint('–');
  const iso = new Date(ms).toISOString();
  return el('time', { datetime: iso, title: iso, class: 'nowrap' }, until(ms));
}

/** Hours and minutes for the axis of a chart, and seconds if it is short. @param {number} ms @param {boolean} seconds */
export const hour = (ms, seconds) => clockText(new Date(ms), state.clock === 'utc').slice(11, seconds ? 19 : 16);
