// Lists that the server gives in pages, and acts on their rows.

import { errorText, get } from '../api.js';
import { toast } from './dialog.js';
import { barred, el } from './dom.js';

/** Rows of one list that a page of the console shows; behind them the server's own filters help. */
const ROWS_MAX = 1000;
const PAGE = 500;

/**
 * All pages of a list, up to a bound.
 * @template T
 * @param {string} path @param {string} name the member with the rows @param {{ signal: AbortSignal, query?: Record<string, unknown> }} options
 * @returns {Promise<{ rows: T[], more: boolean }>}
 */
export async function pages(path, name, options) {
  /** @type {T[]} */
  let rows = [];
  /** @type {string | undefined} */
  let after;
  do {
    const page = /** @type {any} */ (await get(path, { ...options, query: { ...options.query, limit: PAGE, after } }));
    rows = [...rows, ...page[name]];
    after = page.next ?? undefined;
  } while (after && rows.length < ROWS_MAX);
  return { rows, more: after !== undefined };
}

/**
 * A small button in a row. What fails is told; then the list is asked for again.
 * @param {string} label @param {string | null} why the reason why it cannot be pressed @param {() => Promise<unknown>} act @param {() => void} again @param {string} [tone]
 */
export function press(label, why, act, again, tone = 'small') {
  const go = async () => {
    try {
      await act();
    } catch (error) {
      toast(errorText(error), { bad: true });
    }
    again();
  };
  return el('button', { type: 'button', class: `btn ${tone}`, ...barred(why), onclick: () => void go() }, label);
}
