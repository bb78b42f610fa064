// Where errors go that nobody else is told of, in programs that gave no `onError`.

import type { BusError } from './errors.js';

/** Returns a function that writes to the console: per code the 1st, 2nd, 4th, 8th, ... error, with their number. A
 * program without `onError` learns of its losses and is not drowned in them. */
export function consoleReport(write = (line: string): void => console.error(line)): (error: BusError) => void {
  const counts = new Map<string, number>();
  return (error) => {
    const count = (counts.get(error.code) ?? 0) + 1;
    counts.set(error.code, count);
    if ((count & (count - 1)) !== 0) return;
    const number = count === 1 ? '' : `, ${count} so far`;
    write(`millrace: ${error.message} (${error.code}${number}; set onError to hear of all)`);
  };
}
