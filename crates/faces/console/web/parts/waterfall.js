// One axis of time for a trace: busy stretches in proportion, idle ones folded to a small width.

/** @typedef {{ at: number, end: number }} Stretch */
/** @typedef {{ from: number, to: number, x: number, width: number, idle: boolean }} Segment */

/** A stretch without anything is idle from so many ms on, if it is also a part of the whole that is worth folding. */
const IDLE_MS = 20;
const IDLE_PART = 0.1;
/** Of the width, for all folds together and for each at most. */
const FOLDS_PART = 0.3;
const FOLD_PART = 0.08;

/**
 * @param {Stretch[]} stretches @param {boolean} fold
 * @returns {{ segments: Segment[], place: (ts: number) => number }} `place` gives 0 to 1
 */
export function axis(stretches, fold) {
  const busy = joined(stretches);
  const first = busy[0]?.at ?? 0;
  const last = busy.at(-1)?.end ?? first;
  const total = Math.max(last - first, 1);
  /** @type {Segment[]} */
  const segments = [];
  const add = (/** @type {number} */ from, /** @type {number} */ to, /** @type {boolean} */ idle) => {
    const before = segments.at(-1);
    // Short pauses belong to the busy stretch around them.
    if (!idle && before && !before.idle) before.to = to;
    else segments.push({ from, to, x: 0, width: 0, idle });
  };
  let at = first;
  for (const stretch of busy) {
    const gap = stretch.at - at;
    const idle = fold && gap >= IDLE_MS && gap / total >= IDLE_PART;
    if (gap > 0) add(at, stretch.at, idle);
    add(stretch.at, stretch.end, false);
    at = stretch.end;
  }
  const folds = segments.filter((segment) => segment.idle).length;
  const foldWidth = folds === 0 ? 0 : Math.min(FOLD_PART, FOLDS_PART / folds);
  const busyMs = segments.reduce((sum, segment) => sum + (segment.idle ? 0 : segment.to - segment.from), 0);
  const bare = segments.length - folds;
  const left = 1 - folds * foldWidth;
  let x = 0;
  for (const segment of segments) {
    segment.x = x;
    // Where nothing takes any time, all busy stretches are equal.
    segment.width = segment.idle ? foldWidth : left * (busyMs > 0 ? (segment.to - segment.from) / busyMs : 1 / bare);
    x += segment.width;
  }
  return {
    segments,
    place(ts) {
      const segment = segments.findLast((one) => one.from <= ts) ?? segments[0];
      if (!segment) return 0;
      const length = segment.to - segment.from;
      const part = length === 0 ? 0 : (ts - segment.from) / length;
      return Math.min(1, Math.max(0, segment.x + Math.min(1, Math.max(0, part)) * segment.width));
    },
  };
}

/** Stretches in order, those that touch as one. @param {Stretch[]} stretches @returns {Stretch[]} */
function joined(stretches) {
  /** @type {Stretch[]} */
  const found = [];
  for (const { at, end } of stretches.toSorted((a, b) => a.at - b.at)) {
    const last = found.at(-1);
    if (last && at <= last.end) last.end = Math.max(last.end, end);
    else found.push({ at, end: Math.max(at, end) });
  }
  return found;
}
