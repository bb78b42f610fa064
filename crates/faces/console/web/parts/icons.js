// Line icons on a grid of 16.

import { svg } from './dom.js';

/** @type {Record<string, string>} */
const PATHS = {
  overview: 'M2 9.5l3-3 3 2.5 6-6M2 13.5h12',
  topics: 'M2 4h12M2 8h12M2 12h8',
  letters: 'M2 4.5h12v8H2zM2 5l6 4.5L14 5',
  trace: 'M3 3h4M3 3v9.5h4M3 8h4M9.5 3H13M9.5 8H13M9.5 12.5H13',
  jobs: 'M3 3.5h10v9H3zM5.5 8l1.7 1.7L10.5 6.3',
  handlers: 'M3 3.5h4v4H3zM9 8.5h4v4H9zM7 5.5h4v3M9 10.5H5v-3',
  sessions: 'M2.5 3h11v8h-11zM6 13.5h4M8 11v2.5',
  schedules: 'M2.5 4h11v9.5h-11zM2.5 7h11M5.5 2.5v3M10.5 2.5v3',
  waiting: 'M4.5 2.5h7M4.5 13.5h7M5 2.5c0 3 6 4 6 5.5s-6 2.5-6 5.5M11 2.5c0 3-6 4-6 5.5s6 2.5 6 5.5',
  server: 'M2.5 3h11v4h-11zM2.5 9h11v4h-11zM5 5h.1M5 11h.1',
  capabilities: 'M8 2l5 3v6l-5 3-5-3V5zM3 5l5 3 5-3M8 8v6',
  settings: 'M2 5h6M12 5h2M2 11h2M8 11h6M10 3.5v3M6 9.5v3',
  search: 'M7 2.5a4.5 4.5 0 1 0 0 9a4.5 4.5 0 0 0 0-9zM10.5 10.5L14 14',
  pause: 'M5.5 3.5v9M10.5 3.5v9',
  play: 'M5 3.5l7.5 4.5L5 12.5z',
  moon: 'M13 9.5A5.5 5.5 0 0 1 6.5 3a5.5 5.5 0 1 0 6.5 6.5z',
  sun: 'M8 5a3 3 0 1 0 0 6a3 3 0 0 0 0-6zM8 1.5v1M8 13.5v1M1.5 8h1M13.5 8h1M3.4 3.4l.7.7M11.9 11.9l.7.7M3.4 12.6l.7-.7M11.9 4.1l.7-.7',
  clock: 'M8 2a6 6 0 1 0 0 12A6 6 0 0 0 8 2zM8 4.5V8l2.5 1.5',
  close: 'M4 4l8 8M12 4l-8 8',
  up: 'M4 10l4-4 4 4',
  down: 'M4 6l4 4 4-4',
  left: 'M10 4L6 8l4 4',
  right: 'M6 4l4 4-4 4',
  copy: 'M5.5 5.5h8v8h-8zM3.5 10.5h-1v-8h8v1',
  good: 'M8 2a6 6 0 1 0 0 12A6 6 0 0 0 8 2zM5.3 8.2l1.9 1.9 3.6-4',
  warn: 'M8 2.5L14.5 13.5H1.5zM8 6.5v3M8 11.4v.1',
  bad: 'M8 2a6 6 0 1 0 0 12A6 6 0 0 0 8 2zM8 5v3.7M8 10.9v.1',
  key: 'M10.5 3a2.5 2.5 0 1 0 0 5a2.5 2.5 0 0 0 0-5zM8.7 7.3L3 13M5 11l1.5 1.5',
  plus: 'M8 3v10M3 8h10',
  person: 'M8 3a2.5 2.5 0 1 0 0 5a2.5 2.5 0 0 0 0-5zM3 13.5c.5-2.5 2.5-4 5-4s4.5 1.5 5 4',
};

/** @param {string} name @param {number} [size] */
export function icon(name, size = 16) {
  return svg(
    'svg',
    { width: size, height: size, viewBox: '0 0 16 16', fill: 'none', stroke: 'currentColor', 'stroke-width': 1.5, 'stroke-linecap': 'round', 'stroke-linejoin': 'round', 'aria-hidden': 'true' },
    svg('path', { d: PATHS[name] ?? '' }),
  );
}

/** The mark of the house: three waves. */
export function mark() {
  const wave = (/** @type {number} */ y, /** @type {number} */ opacity) =>
    svg('path', { d: `M5 ${y}c3.7-3.4 7.3-3.4 11 0s7.3 3.4 11 0`, opacity });
  return svg(
    'svg',
    { viewBox: '0 0 32 32', 'aria-hidden': 'true' },
    svg('rect', { width: 32, height: 32, rx: 7, fill: 'var(--accent)' }),
    svg('g', { fill: 'none', stroke: 'var(--on-accent)', 'stroke-width': 2.6, 'stroke-linecap': 'round' }, wave(11, 1), wave(17.5, 0.8), wave(24, 0.55)),
  );
}
