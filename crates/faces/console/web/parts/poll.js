// Asking again and again, only while somebody looks: never in a hidden tab, never while everything is paused.

import { Problem } from '../api.js';
import { on, state } from '../state.js';
import { toast } from './dialog.js';

const AWAY_MS = 1000;

/**
 * Calls `ask` at once and then `ms` after it has answered. Ends with the page.
 * @param {AbortSignal} signal @param {number} ms @param {() => Promise<void>} ask
 */
export function poll(signal, ms, ask) {
  let timer = 0;
  let asking = false;
  const rests = () => document.hidden || state.paused;
  const run = async () => {
    if (signal.aborted || asking) return;
    clearTimeout(timer);
    if (rests()) return;
    // Nothing moves behind a question, and what is being deleted is not asked for.
    if (document.querySelector('dialog[open]')) {
      timer = window.setTimeout(run, ms);
      return;
    }
    asking = true;
    let wait = ms;
    try {
      await ask();
    } catch (error) {
      if (signal.aborted) return;
      // A server that is away is looked for more often; the frame says that it is away.
      if (!(error instanceof Problem)) throw error;
      if (error.status === 0) wait = Math.min(ms, AWAY_MS);
      else toast(error.message, { bad: true });
    } finally {
      asking = false;
      if (!signal.aborted) timer = window.setTimeout(run, wait);
    }
  };
  const wake = () => {
    if (!rests()) void run();
  };
  document.addEventListener('visibilitychange', wake, { signal });
  const off = on('paused', wake);
  signal.addEventListener('abort', () => {
    clearTimeout(timer);
    off();
  });
  void run();
  return run;
}
