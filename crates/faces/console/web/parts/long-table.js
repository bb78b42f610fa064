// Long tables draw only the rows that can be seen.

import { el, fill, region } from './dom.js';
import { rowOf } from './table.js';

/**
 * A table of any length: rows of one height, of which only those near the window are in the page.
 * @template T
 * @param {{ caption: string, columns: import('./table.js').Column<T>[], open: (row: T) => void, isOn: (row: T) => boolean }} spec
 */
export function longTable(spec) {
  let rows = /** @type {T[]} */ ([]);
  let wanted = 0;
  const body = el('tbody');
  const grid = el('table', { class: 'fixed' },
    el('caption', { class: 'unseen' }, spec.caption),
    el('colgroup', null, spec.columns.map((column) => {
      const made = el('col');
      if (column.width) made.style.width = column.width;
      return made;
    })),
    el('thead', null, el('tr', null, spec.columns.map((column) => el('th', { scope: 'col', class: column.class }, column.label)))),
    body);
  const box = region('scroll tall', spec.caption, grid);
  const space = (/** @type {number} */ px) => {
    const cell = el('td', { colspan: spec.columns.length });
    cell.style.height = `${px}px`;
    return el('tr', { class: 'space', 'aria-hidden': 'true' }, cell);
  };
  const draw = () => {
    wanted = 0;
    const height = Number.parseInt(getComputedStyle(document.documentElement).getPropertyValue('--row'), 10) || 36;
    const first = Math.max(0, Math.floor(box.scrollTop / height) - 10);
    const near = Math.ceil((box.clientHeight || 600) / height) + 20;
    const last = Math.min(rows.length, first + near);
    grid.setAttribute('aria-rowcount', String(rows.length + 1));
    const shown = rows.slice(first, last).map((row, at) => {
      const made = rowOf(spec, row);
      made.setAttribute('aria-rowindex', String(first + at + 2));
      return made;
    });
    fill(body, first > 0 ? space(first * height) : null, shown, last < rows.length ? space((rows.length - last) * height) : null);
  };
  const ask = () => {
    if (wanted === 0) wanted = requestAnimationFrame(draw);
  };
  box.addEventListener('scroll', ask, { passive: true });
  return {
    box,
    /** @param {T[]} next */
    show(next) {
      rows = next;
      ask();
    },
  };
}
