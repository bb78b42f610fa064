// Which deliveries of one subscription came on the present connection and were not given back: only these may be
// acknowledged. A late ACK from before a reconnect could otherwise complete, being cumulative, events it never meant.

import type { DeliveryPlace } from './frames.js';

export class Leases {
  readonly #places = new Set<string>();

  /** The server holds at most `max_inflight` leases of a member; what is older than twice that has timed out there. */
  note(place: DeliveryPlace, maxInflight: number): void {
    const name = nameOf(place);
    this.#places.delete(name);
    this.#places.add(name);
    for (const oldest of this.#places) {
      if (this.#places.size <= maxInflight * 2) break;
      this.#places.delete(oldest);
    }
  }

  has(place: DeliveryPlace): boolean {
    return this.#places.has(nameOf(place));
  }

  end(place: DeliveryPlace): void {
    this.#places.delete(nameOf(place));
  }

  clear(): void {
    this.#places.clear();
  }
}

function nameOf({ partition, offset }: DeliveryPlace): string {
  return `${partition}:${offset}`;
}
