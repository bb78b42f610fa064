// The handle on a subscription.

import type { Position } from './frames.js';
import type { Membership } from './membership.js';
import type { Subscriptions } from './subscriptions.js';

export class Subscription {
  readonly topic: string;
  readonly group: string;
  /** Resolves when the server has confirmed the subscription, with where the group stood. Rejects if it never will. */
  readonly ready: Promise<Position[]>;
  readonly #member: Membership;
  readonly #subscriptions: Subscriptions;

  constructor(member: Membership, subscriptions: Subscriptions) {
    this.topic = member.request.topic;
    this.group = member.request.group;
    this.ready = member.ready.promise;
    this.#member = member;
    this.#subscriptions = subscriptions;
  }

  /** `false` after `unsubscribe`, `close`, or when the server took it back. A lost connection is not an end. */
  get active(): boolean {
    return !this.#member.ended;
  }

  /** Lets the server deliver at most this many unacknowledged events. Those that are out already stay. */
  resize(maxInflight: number): void {
    this.#member.resize(maxInflight);
    this.#subscriptions.renew(this.#member);
  }

  /** Leaves the group; what was delivered and not acknowledged goes to other members. Resolves when the server has
   * confirmed it, or the connection is gone. */
  unsubscribe(): Promise<void> {
    return new Promise((resolve) => this.#subscriptions.remove(this.#member, resolve));
  }
}
