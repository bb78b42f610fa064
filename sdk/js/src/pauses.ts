// The waits of one run of the outbox drainer: as long as the server asks for, else longer each time, and all together
// no longer than the rows may be held.

import { Backoff, type BackoffOptions } from './backoff.js';
import { type BusError, Refused } from './errors.js';

export class Pauses {
  readonly #backoff: Backoff;
  /** Cuts a wait short. */
  readonly #signal: AbortSignal;
  #leftMs: number;

  constructor(msMax: number, backoff: BackoffOptions, signal: AbortSignal) {
    this.#leftMs = msMax;
    this.#backoff = new Backoff(backoff);
    this.#signal = signal;
  }

  /** `false` when there is no more time to wait. The last wait may be shorter than asked for, but is never left out:
   * whoever calls again at once must not make a busy loop of it. */
  async after(error: BusError): Promise<boolean> {
    // Room is waited for where it is taken.
    if (error.code === 'queue_full') return true;
    if (this.#leftMs <= 0) return false;
    const wanted = (error instanceof Refused ? error.retryAfterMs : undefined) ?? this.#backoff.nextMs();
    const ms = Math.min(Math.max(wanted, 1), this.#leftMs);
    this.#leftMs -= ms;
    await sleep(ms, this.#signal);
    return true;
  }

  /** Something was confirmed. */
  progress(): void {
    this.#backoff.reset();
  }
}

function sleep(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) return resolve();
    const done = (): void => {
      clearTimeout(timer);
      signal.removeEventListener('abort', done);
      resolve();
    };
    const timer = setTimeout(done, ms);
    signal.addEventListener('abort', done);
  });
}
