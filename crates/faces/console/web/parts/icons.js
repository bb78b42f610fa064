// Line icons on a grid of 16.

import { svg } from './dom.js';

/** @type {Record<string, string>} */
const PATHS = {
  overview: 'M2 9.500l3-3 3 2.500 6-6M2 13.500h12',
  topics: 'M2 4h12M2 8h12M2 12h8',
  letters: 'M2 4.500h12v8H2zM2 5l6 4.500L14 5',
  trace: 'M3 3h4M3 3v9.500h4M3 8h4M9.500 3H13M9.500 8H13M9.500 12.500H13',
  jobs: 'M3 3.500h10v9H3zM5.500 8l1.700 1.700L10.500 6.300',
  handlers: 'M3 3.500h4v4H3zM9 8.500h4v4H9zM7 5.500h4v3M9 10.500H5v-3',
  sessions: 'M2.500 3h11v8h-11zM6 13.500h4M8 11v2.500',
  schedules: 'M2.500 4h11v9.500h-11zM2.500 7h11M5.500 2.500v3M10.500 2.500v3',
  waiting: 'M4.500 2.500h7M4.500 13.500h7M5 2.500c0 3 6 4 6 5.500s-6 2.500-6 5.500M11 2.500c0 3-6 4-6 5.500s6 2.500 6 5.500',
  server: 'M2.500 3h11v4h-11zM2.500 9h11v4h-11zM5 5h.1M5 11h.1',
  capabilities: 'M8 2l5 3v6l-5 3-5-3V5zM3 5l5 3 5-3M8 8v6',
  settings: 'M2 5h6M12 5h2M2 11h2M8 11h6M10 3.500v3M6 9.500v3',
  search: 'M7 2.500a4.500 4.500 0 1 0 0 9a4.500 4.500 0 0 0 0-9zM10.500 10.500L14 14',
  pause: 'M5.500 3.500v9M10.500 3.500v9',
  play: 'M5 3.500l7.500 4.500L5 12.500z',
  moon: 'M13 9.500A5.500 5.500 0 0 1 6.500 3a5.500 5.500 0 1 0 6.500 6.500z',
  sun: 'M8 5a3 3 0 1 0 0 6a3 3 0 0 0 0-6zM8 1.500v1M8 13.500v1M1.500 8h1M13.500 8h1M3.400 3.400l.7.7M11.900 11.900l.7.7M3.400 12.600l.7-.7M11.900 4.100l.7-.7',
  clock: 'M8 2a6 6 0 1 0 0 12A6 6 0 0 0 8 2zM8 4.500V8l2.500 1.500',
  close: 'M4 4l8 8M12 4l-8 8',
  up: 'M4 10l4-4 4 4',
  down: 'M4 6l4 4 4-4',
  left: 'M10 4L6 8l4 4',
  right: 'M6 4l4 4-4 4',
  copy: 'M5.500 5.500h8v8h-8zM3.500 10.500h-1v-8h8v1',
  good: 'M8 2a6 6 0 1 0 0 12A6 6 0 0 0 8 2zM5.300 8.200l1.900 1.900 3.600-4',
  warn: 'M8 2.500L14.500 13.500H1.500zM8 6.500v3M8 11.400v.1',
  bad: 'M8 2a6 6 0 1 0 0 12A6 6 0 0 0 8 2zM8 5v3.700M8 10.900v.1',
  key: 'M10.500 3a2.500 2.500 0 1 0 0 5a2.500 2.500 0 0 0 0-5zM8.700 7.300L3 13M5 11l1.500 1.500',
  plus: 'M8 3v10M3 8h10',
  person: 'M8 3a2.500 2.500 0 1 0 0 5a2.500 2.500 0 0 0 0-5zM3 13.500c.5-2.500 2.500-4 5-4s4.500 1.500 5 4',
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
    svg('path', { d: `M5 ${y}c3.700-3.400 7.300-3.400 11 0s7.300 3.400 11 0`, opacity });
  return svg(
    'svg',
    { viewBox: '0 0 32 32', 'aria-hidden': 'true' },
    svg('rect', { width: 32, height: 32, rx: 7, fill: 'var(--accent)' }),
    svg('g', { fill: 'none', stroke: 'var(--on-accent)', 'stroke-width': 2.6, 'stroke-linecap': 'round' }, wave(11, 1), wave(17.5, 0.8), wave(24, 0.55)),
  );
}
