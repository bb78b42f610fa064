// Tables: real ones, with a caption and sorting.

import { el, fill, region } from './dom.js';
import { icon } from './icons.js';
import { count, time } from './time.js';

/**
 * @template T
 * @typedef {{ name: string, label: string, class?: string, cell: (row: T) => Node | string | number,
 *   by?: (row: T) => number | string, width?: string }} Column
 */

/**
 * @template T
 * @param {{ caption: string, columns: Column<T>[], sort?: string, descending?: boolean, onsort?: (name: string, descending: boolean) => void,
 *   open?: (row: T) => void, isOn?: (row: T) => boolean, key?: (row: T) => string }} spec
 */
export function table(spec) {
  let rows = /** @type {T[]} */ ([]);
  let sort = spec.sort ?? '';
  let descending = spec.descending ?? false;
  const body = el('tbody');
  const head = el('tr');
  const box = region('scroll', spec.caption, el('table', null, el('caption', { class: 'unseen' }, spec.caption), el('thead', null, head), body));

  const drawHead = () => fill(head, spec.columns.map((column) => {
    const on = column.name === sort;
    if (!column.label) return el('td', { class: 'no-head' });
    if (!column.by) return el('th', { scope: 'col', class: column.class }, column.label);
    const press = () => {
      descending = on ? !descending : column.class === 'num';
      sort = column.name;
      spec.onsort?.(sort, descending);
      draw();
    };
    return el('th', { scope: 'col', class: column.class, 'aria-sort': on ? (descending ? 'descending' : 'ascending') : null },
      el('button', { type: 'button', onclick: press }, column.label, on ? icon(descending ? 'down' : 'up', 12) : ''));
  }));

  const draw = () => {
    drawHead();
    const by = spec.columns.find((column) => column.name === sort)?.by;
    const shown = by ? [...rows].sort((a, b) => compare(by(a), by(b)) * (descending ? -1 : 1)) : rows;
    fill(body, shown.map((row) => rowOf(spec, row)));
  };
  return {
    box,
    /** @param {T[]} next @param {HTMLElement} [none] what is shown instead of no rows */
    show(next, none) {
      if (none) {
        box.hidden = next.length === 0;
        none.hidden = next.length > 0;
      }
      // Rows never move under the pointer.
      if (rows.length > 0 && box.matches(':hover') && spec.key) {
        const known = new Map(next.map((row) => [spec.key?.(row), row]));
        const kept = rows.map((row) => known.get(spec.key?.(row))).filter((row) => row !== undefined);
        const fresh = next.filter((row) => !rows.some((old) => spec.key?.(old) === spec.key?.(row)));
        next = /** @type {T[]} */ ([...kept, ...fresh]);
      }
      rows = next;
      draw();
    },
  };
}

/** @param {number | string} a @param {number | string} b */
const compare = (a, b) => (typeof a === 'number' && typeof b === 'number' ? a - b : String(a).localeCompare(String(b)));

/** @template T @param {any} spec @param {T} row */
export function rowOf(spec, row) {
  const cells = spec.columns.map((/** @type {Column<T>} */ column) => el('td', { class: column.class }, column.cell(row)));
  const made = el('tr', { class: `${spec.open ? 'link' : ''}${spec.isOn?.(row) ? ' on' : ''}`.trim() || null }, cells);
  if (spec.open) {
    made.addEventListener('click', (event) => {
      const target = /** @type {Element} */ (event.target);
      if (!target.closest('a, button, input, label') && !getSelection()?.toString()) spec.open(row);
    });
  }
  return made;
}

/** A column of whole numbers, which are the member of this name. @param {string} name @param {string} label */
export function number(name, label) {
  const of = (/** @type {any} */ row) => row[name] ?? 0;
  return { name, label, class: 'num', by: of, cell: (/** @type {any} */ row) => count(of(row)) };
}

/** A column of points in time. @param {string} name @param {string} label */
export function when(name, label) {
  return { name, label, by: (/** @type {any} */ row) => row[name] ?? 0, cell: (/** @type {any} */ row) => time(row[name]) };
}
