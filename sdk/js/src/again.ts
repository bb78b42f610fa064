// Requests of members that the server refused just now, to be asked again: one at a time, because all at once would be
// refused again. When one is taken the next is asked, when one is refused there is a pause. Bounded by the number of
// members, and over when the connection is: the next one is asked for everything anew.

import { Backoff, type BackoffOptions } from './backoff.js';
import type { Refused } from './errors.js';
import type { Membership } from './membership.js';

export class Again {
  readonly #backoff: Backoff;
  readonly #waiting = new Map<Membership, () => void>();
  /** Whose answer decides how it goes on. */
  #asked: Membership | undefined;
  #timer: ReturnType<typeof setTimeout> | undefined;

  constructor(backoff: BackoffOptions) {
    this.#backoff = new Backoff(backoff);
  }

  has(member: Membership): boolean {
    return this.#waiting.has(member) || this.#asked === member;
  }

  /** Waits as long as the server asks for, else longer each time. */
  refused(member: Membership, error: Refused, ask: () => void): void {
    if (this.#asked === member) this.#asked = undefined;
    this.#waiting.set(member, ask);
    if (this.#asked !== undefined || this.#timer !== undefined) return;
    this.#timer = setTimeout(() => {
      this.#timer = undefined;
      this.#next();
    }, error.retryAfterMs ?? this.#backoff.nextMs());
  }

  /** It was answered otherwise, or is not wanted any more. */
  settled(member: Membership): void {
    this.#waiting.delete(member);
    if (this.#asked !== member) return;
    this.#asked = undefined;
    this.#backoff.reset();
    if (this.#timer === undefined) this.#next();
  }

  /** The connection is gone. */
  clear(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.#waiting.clear();
    this.#asked = undefined;
    this.#backoff.reset();
  }

  #next(): void {
    for (const [member, ask] of this.#waiting) {
      this.#waiting.delete(member);
      this.#asked = member;
      return ask();
    }
  }
}
