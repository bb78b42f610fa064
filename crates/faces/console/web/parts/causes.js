// A trace as a tree: which node hangs below which, which of them can be seen, and the same as text.

import { span } from './time.js';

/** @typedef {import('../types.js').TraceNode} TraceNode */
/** @typedef {{ node: TraceNode, level: number, below: number, failed: boolean, lost: boolean }} Row */

const FAILED = new Set(['deadLettered', 'dead_lettered', 'lost', 'failed', 'refused', 'orphan', 'faulty']);
/** What ended well although it failed before. */
const MENDED = new Set(['done', 'acked', 'replayed']);

/** @param {TraceNode} node */
export const isFailed = (node) => FAILED.has(node.status) || (node.error != null && !MENDED.has(node.status));

/** What waits has its end before it. @param {TraceNode} node */
export const endOf = (node) => (['waiting', 'pending', 'claimed', 'inflight'].includes(node.status) ? node.at : Math.max(node.at, node.endedAt ?? node.at));

/** Nodes of several pages: a node that comes again says more. @param {TraceNode[]} known @param {TraceNode[]} more */
export function merge(known, more) {
  const all = new Map(known.map((node) => [node.id, node]));
  for (const node of more) all.set(node.id, node);
  return [...all.values()].sort((a, b) => a.at - b.at);
}

/**
 * The nodes in the order of the tree. `below` counts all rows under a row, which follow it. A node whose cause is not
 * among them stands at the left, as does one node of every circle.
 * @param {TraceNode[]} nodes @returns {Row[]}
 */
export function rows(nodes) {
  const known = new Map(nodes.map((node) => [node.id, node]));
  /** @type {Map<string, TraceNode[]>} */
  const children = new Map();
  /** @type {TraceNode[]} */
  const tops = [];
  for (const node of nodes) {
    const parent = node.parent != null && node.parent !== node.id && known.has(node.parent) ? node.parent : null;
    if (parent === null) {
      tops.push(node);
      continue;
    }
    const siblings = children.get(parent);
    if (siblings) siblings.push(node);
    else children.set(parent, [node]);
  }
  /** @type {Row[]} */
  const found = [];
  /** @type {Set<string>} */
  const seen = new Set();
  for (const top of [...tops, ...nodes]) {
    // With a stack of its own and no recursion: a chain may be thousands of nodes long.
    const stack = [{ node: top, level: 0 }];
    /** @type {{ at: number, level: number }[]} */
    const open = [];
    for (let next = stack.pop(); next; next = stack.pop()) {
      if (seen.has(next.node.id)) continue;
      seen.add(next.node.id);
      close(found, open, next.level);
      open.push({ at: found.length, level: next.level });
      const { node, level } = next;
      found.push({ node, level, below: 0, failed: isFailed(node), lost: level === 0 && node.parent != null });
      for (const child of (children.get(node.id) ?? []).toReversed()) stack.push({ node: child, level: level + 1 });
    }
    close(found, open, 0);
  }
  return found;
}

/** Rows at this level and deeper have ended: now it is known how many are below each. @param {Row[]} found @param {{ at: number, level: number }[]} open @param {number} level */
function close(found, open, level) {
  for (let last = open.at(-1); last && last.level >= level; last = open.at(-1)) {
    const row = found[last.at];
    if (row) row.below = found.length - last.at - 1;
    open.pop();
  }
}

/**
 * The rows that can be seen: none below a collapsed one; of failed ones also what led to them.
 * @param {Row[]} all @param {Set<string>} collapsed @param {boolean} failedOnly
 */
export function visible(all, collapsed, failedOnly) {
  /** How many rows before each have failed. @type {number[]} */
  const failed = [0];
  for (const row of all) failed.push((failed.at(-1) ?? 0) + (row.failed ? 1 : 0));
  /** @type {Row[]} */
  const shown = [];
  for (let at = 0; at < all.length; at += 1) {
    const row = all[at];
    if (!row) continue;
    if (failedOnly && failed[at] === failed[at + 1 + row.below]) {
      at += row.below;
      continue;
    }
    shown.push(row);
    if (collapsed.has(row.node.id)) at += row.below;
  }
  return shown;
}

/** @type {Record<string, string>} */
export const WORDS = { event: 'event', message: 'message', delivery: 'group', claim: 'handler', timer: 'timer', schedule: 'schedule', letter: 'letter', replay: 'replay' };

/** The same lines as `millrace trace --event`. @param {Row[]} all */
export function asText(all) {
  const began = all.reduce((first, row) => Math.min(first, row.node.at), Infinity);
  /** Whether a row of this level follows, by level. @type {boolean[]} */
  const goesOn = [];
  const lines = all.toReversed().map(({ node, level }) => {
    const bars = Array.from({ length: Math.max(0, level - 1) }, (_, at) => (goesOn[at + 1] ? '│  ' : '   ')).join('');
    const mark = level === 0 ? '' : `${bars}${goesOn[level] ? '├─ ' : '└─ '}`;
    goesOn.length = level;
    goesOn[level] = true;
    return `${mark}${lineOf(node, began)}`;
  });
  return lines.toReversed().join('\n');
}

/** @param {TraceNode} node @param {number} began */
function lineOf(node, began) {
  const own = ['delivery', 'claim', 'schedule'].includes(node.what) ? '' : ` ${node.id}`;
  const place = node.place && own ? ` at ${node.place.partition}/${node.place.offset}` : '';
  const attempts = (node.attempts ?? 0) > 1 ? ` after ${node.attempts} attempts` : '';
  const to = node.to ? ` -> ${node.to}` : '';
  const error = node.error ? `: ${node.error}` : '';
  const when = node.at === began ? new Date(node.at).toISOString() : `+${node.at - began} ms`;
  const took = endOf(node) > node.at ? `, ${span(endOf(node) - node.at)}` : '';
  return `${WORDS[node.what] ?? node.what} ${node.type}${own}${place}  ${node.status}${attempts}${to}${error}  (${when}${took})`;
}
