// How many publishes, and how much of them, may wait for their confirmation.

import { Deferred, refusal } from './deferred.js';
import { QueueFull } from './errors.js';

export class Room {
  readonly #countMax: number;
  readonly #sizeMax: number;
  #count = 0;
  #size = 0;
  #closed: Error | undefined;
  #waiting: Deferred<void>[] = [];

  constructor(countMax: number, sizeMax: number) {
    this.#countMax = countMax;
    this.#sizeMax = sizeMax;
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

  /** Resolves when there is room, without keeping it for the caller. */
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
    return this.#count < this.#countMax && this.#size < this.#sizeMax;
  }
}
