// How long to wait before connecting again: 1, 2, 4, 8, then 10 seconds, each shortened by a random part so that the
// clients of a restarted server do not all come at once.

/** Most of a delay that jitter takes away. */
const JITTER_SHARE = 0.2;

export interface BackoffOptions {
  /** The first delay is twice this. */
  startMs?: number;
  maxMs?: number;
  /** A number in [0, 1). */
  random?: () => number;
}

export class Backoff {
  readonly #startMs: number;
  readonly #maxMs: number;
  readonly #random: () => number;
  #lastMs: number;

  constructor({ startMs = 500, maxMs = 10_000, random = Math.random }: BackoffOptions = {}) {
    this.#startMs = startMs;
    this.#maxMs = maxMs;
    this.#random = random;
    this.#lastMs = startMs;
  }

  /** Doubles before waiting. */
  nextMs(): number {
    this.#lastMs = Math.min(this.#lastMs * 2, this.#maxMs);
    return this.#lastMs * (1 - JITTER_SHARE * this.#random());
  }

  reset(): void {
    this.#lastMs = this.#startMs;
  }
}
