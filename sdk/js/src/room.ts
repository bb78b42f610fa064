// How many publishes, and how much of them, may wait for their confirmation.

import { Deferred, refusal } from './deferred.js';
import { QueueFull } from './errors.js';

export class Room {
  readonly #countMax: number;
  readonly #sizeMax: number;
  /** The largest that `take` is ever asked for. */
  readonly #oneMax: number;
  #count = 0;
  #size = 0;
  #closed: Error | undefined;
  #waiting: Deferred<void>[] = [];

  constructor(countMax: number, sizeMax: number, oneMax: number) {
    this.#countMax = countMax;
    this.#sizeMax = sizeMax;
    this.#oneMax = oneMax;
  }

  /** Throws `QueueFull`. Something larger than all room is taken alone. */
  take(size: number): void {
    if (this.#count >= this.#countMax) throw new QueueFull(`${this.#count} publishes`);
    if (this.#count > 0 && this.#size + size > this.#sizeMax) throw new QueueFull(`${this.#size} characters`);
    this.#count += 1;
    this.#size += size;
  }

  give(size: number): void {
    this.#count -= 1;
    this.#size -= size;
    if (this.#hasRoom()) for (const waiter of this.#waiting.splice(0)) waiter.resolve();
  }

  /** Resolves when there is room for one more of any size, without keeping it for the caller. Were it less, whoever
   * was refused and waits would be told at once to try again, and never let a confirmation be read in between. */
  wait(): Promise<void> {
    if (this.#closed) return refusal(this.#closed);
    if (this.#hasRoom()) return Promise.resolve();
    const waiter = new Deferred<void>();
    this.#waiting.push(waiter);
    return waiter.promise;
  }

  close(error: Error): void {
    this.#closed = error;
    for (const waiter of this.#waiting.splice(0)) waiter.reject(error);
  }

  #hasRoom(): boolean {
    if (this.#count === 0) return true;
    return this.#count < this.#countMax && this.#size + this.#oneMax <= this.#sizeMax;
  }
}
