// The time without a usable connection: which server to try next, how long to wait, and when to give up. No I/O in it.

import { Backoff, type BackoffOptions } from './backoff.js';
import type { Endpoint } from './endpoint.js';
import { type BusError, Rejected, Unreachable } from './errors.js';
import { ServerRound } from './round.js';
import type { ServerList } from './servers.js';
import type { TransportEnd } from './transport.js';

/** Waiting does not make a wrong token right. Any other status may come from a proxy. */
const FINAL_STATUSES = [401, 403, 404];
/** Longest delay after a round in which a server answered `moved`. Such a server is alive and costs little to ask, and
 * the lead is usually taken within seconds: a longer delay would only prolong the time without service. */
const MOVED_DELAY_MS_MAX = 1_000;

/** Without `delayMs` at once. */
export type NextStep = { endpoint: Endpoint; delayMs?: number } | { error: BusError };

interface Failure {
  url: string;
  reason: string;
  status?: number | undefined;
  detail?: string | undefined;
}

export class Outage {
  readonly #list: ServerList;
  readonly #giveUpAfterMs: number;
  readonly #backoff: Backoff;
  #round: ServerRound;
  #since = performance.now();
  /** Why the servers of this round could not be used. */
  #failures: Failure[] = [];
  /** A server of this round answered `moved`. */
  #moved = false;
  /** A server of this round had accepted the connection, which was lost since. Nothing says that it would refuse now. */
  #accepted = false;

  constructor(list: ServerList, backoff: BackoffOptions, giveUpAfterMs: number) {
    this.#list = list;
    this.#giveUpAfterMs = giveUpAfterMs;
    this.#backoff = new Backoff(backoff);
    this.#round = new ServerRound(list);
  }

  /** A connection that was in use has ended: everything starts anew, with the other servers first. */
  lost(endpoint: Endpoint, { reason }: TransportEnd): void {
    this.#backoff.reset();
    this.#round = ServerRound.after(this.#list, endpoint);
    this.closed(endpoint, reason);
  }

  /** A server accepted the connection, which ended before anything was received. The round goes on, so that servers that
   * accept and close are not connected to without a delay. */
  closed(endpoint: Endpoint, reason: string): void {
    this.#since = performance.now();
    this.#failures = [{ url: endpoint.ws, reason }];
    this.#accepted = true;
  }

  failed(endpoint: Endpoint, { reason, status, detail }: TransportEnd): void {
    this.#failures.push({ url: endpoint.ws, reason, status, detail });
  }

  /** The server does not lead. The leader is tried next, unless it was tried in this round. */
  moved(endpoint: Endpoint, reason: string, leader: Endpoint | undefined): void {
    this.#moved = true;
    this.#failures.push({ url: endpoint.ws, reason });
    if (leader) this.#round.startWith(leader);
  }

  /** Returns the next server and how long to wait before it is tried, or why there will be no connection. */
  next(): NextStep {
    const next = this.#round.next();
    if (next) return { endpoint: next };
    const isFinal = ({ status }: Failure): boolean => status !== undefined && FINAL_STATUSES.includes(status);
    const refused = this.#accepted ? undefined : this.#failures.every(isFinal) && this.#failures[0];
    if (refused) return { error: new Rejected(refused.url, refused.status ?? 0, refused.detail) };
    if (performance.now() - this.#since >= this.#giveUpAfterMs) return { error: this.#error() };
    let delayMs = this.#backoff.nextMs();
    if (this.#moved) delayMs = Math.min(delayMs, MOVED_DELAY_MS_MAX);
    this.#failures = [];
    this.#moved = this.#accepted = false;
    this.#round.restart();
    const first = this.#round.next();
    return first ? { endpoint: first, delayMs } : { error: this.#error() };
  }

  /** Returns the failures of the round as one error. */
  #error(): BusError {
    const [only, ...rest] = this.#failures;
    if (only && rest.length === 0) return new Unreachable(only.url, only.reason);
    const reasons = this.#failures.map(({ url, reason }) => `${url}: ${reason}`);
    return new Unreachable(`any of ${reasons.length} servers`, reasons.join('; '));
  }
}
