// Lines, drawn as SVG. Zero is on the axis, gaps stay gaps, and every chart has a sentence.

import { el, grid, region, svg } from './dom.js';
import { state } from '../state.js';
import { hour } from './time.js';

/** @typedef {[number, number | null][]} Points */

/** The last hour in at most sixty steps, or less of a server that was started a moment ago. */
export function recent() {
  const now = Date.now() + state.skew;
  const step = 10_000;
  const from = Math.max(now - 3_600_000, Math.min(state.who?.startedAt ?? 0, now - 60 * 1000));
  const wide = Math.max(step, Math.ceil((now - from) / 60 / step) * step);
  // Only whole steps: the last one would look like a fall.
  const steps = Math.max(1, Math.floor((now - from) / wide));
  return { from: Math.round(from), to: Math.round(from) + steps * wide, step: wide };
}

/** The parts of a line between gaps, as paths in a box of `w` by `h`. @param {Points} points @param {number} top @param {number} w @param {number} h */
function paths(points, top, w, h) {
  const n = Math.max(points.length - 1, 1);
  /** @type {{ line: string, area: string }[]} */
  const found = [];
  /** @type {string[]} */
  let run = [];
  let first = 0;
  let last = 0;
  const end = () => {
    if (run.length > 0) {
      const line = run.length === 1 ? `${run[0]}h.01` : run.join('');
      found.push({ line, area: `${run.join('')}L${last.toFixed(2)} ${h}L${first.toFixed(2)} ${h}Z` });
    }
    run = [];
  };
  points.forEach(([, value], at) => {
    if (value === null) return end();
    const x = (at / n) * w;
    const y = h - (Math.max(value, 0) / top) * h;
    if (run.length === 0) first = x;
    last = x;
    run.push(`${run.length === 0 ? 'M' : 'L'}${x.toFixed(2)} ${y.toFixed(2)}`);
  });
  end();
  return found;
}

/** @param {Points} points */
const most = (points) => points.reduce((max, [, value]) => Math.max(max, value ?? 0), 0);

/** A small line without axes. @param {Points} points @param {string} sentence */
export function spark(points, sentence) {
  const top = Math.max(most(points), 1e-9);
  const parts = paths(points, top, 100, 30);
  return svg(
    'svg',
    { class: 'spark', viewBox: '0 -1 100 32', preserveAspectRatio: 'none', role: 'img', 'aria-label': sentence },
    ...parts.map(({ area }) => svg('path', { class: 'area', d: area })),
    ...parts.map(({ line }) => svg('path', { class: 'stroke', d: line })),
  );
}

/** A round number at or above the value. @param {number} value */
export function nice(value) {
  if (value <= 0) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  const step = [1, 2, 2.5, 5, 10].find((one) => one * power >= value) ?? 10;
  return step * power;
}

/** A line with its scale, and the same as a table for those who cannot see it. @param {Points} points @param {string} sentence @param {(value: number) => string} show */
export function chart(points, sentence, show) {
  const top = nice(most(points));
  // Labels that would be equal get one more digit.
  const scale = new Set([top, top / 2, 0].map(show)).size === 3 ? show : (/** @type {number} */ value) => String(Number(value.toPrecision(2)));
  const parts = paths(points, top, 100, 100);
  const levels = [0, 50, 100].map((y) => svg('line', { class: 'grid', x1: 0, x2: 100, y1: y, y2: y }));
  const label = (/** @type {number} */ value, /** @type {string} */ place) => {
    const made = el('span', { class: 'scale', 'aria-hidden': 'true' }, scale(value));
    made.style.top = place;
    return made;
  };
  const from = points[0]?.[0] ?? 0;
  const to = points.at(-1)?.[0] ?? 0;
  const at = (/** @type {number} */ ts) => hour(ts, to - from < 600_000);
  const rows = points.filter(([, value]) => value !== null);
  const table = el(
    'details', null, el('summary', { class: 'muted' }, 'As a table'),
    region('scroll tall', `${sentence}, as a table`, grid(sentence, ['Time', 'Value'], rows.map(([ts, value]) => el('tr', null, el('td', null, at(ts)), el('td', { class: 'num' }, show(value ?? 0)))), true,
    )),
  );
  return el(
    'figure', null,
    el('div', { class: 'chart-frame' },
      svg('svg', { class: 'chart', viewBox: '0 0 100 100', preserveAspectRatio: 'none', role: 'img', 'aria-label': sentence },
        ...levels, ...parts.map(({ area }) => svg('path', { class: 'area', d: area })), ...parts.map(({ line }) => svg('path', { class: 'stroke', d: line }))),
      label(top, '-7px'), label(top / 2, '68px'), label(0, '143px'),
      el('div', { class: 'times', 'aria-hidden': 'true' }, [from, (from + to) / 2, to].map((ts) => el('span', null, at(ts))))),
    table,
  );
}
