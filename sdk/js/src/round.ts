// A round: every server of a list once, and the leaders that they name before the others of the list. Between rounds the
// client waits. No I/O in it.

import type { Endpoint } from './endpoint.js';
import type { ServerList } from './servers.js';

/** Most leaders outside the list that are tried in one round: servers that name ever new ones must not keep a client
 * from its list, nor from waiting. */
const UNLISTED_MAX = 4;

export class ServerRound {
  readonly #list: ServerList;
  /** Where in the list to look first. */
  #at = 0;
  #named: Endpoint | undefined;
  /** By their addresses. */
  readonly #tried = new Set<string>();

  constructor(list: ServerList) {
    this.#list = list;
  }

  /** Starts after a connection to `lost` has ended. That server counts as tried: the others come first, and with a list
   * of one the round is over at once. */
  static after(list: ServerList, lost: Endpoint): ServerRound {
    const round = new ServerRound(list);
    round.startWith(lost);
    round.next();
    return round;
  }

  /** Returns the next server that was not tried in this round: the leader that was named, else one of the list. */
  next(): Endpoint | undefined {
    const { endpoints } = this.#list;
    const inTurn = [...endpoints.slice(this.#at), ...endpoints.slice(0, this.#at)];
    const next = this.#named ?? inTurn.find(({ ws }) => !this.#tried.has(ws));
    this.#named = undefined;
    if (!next) return undefined;
    const index = this.#indexOf(next);
    if (index >= 0) this.#at = (index + 1) % endpoints.length;
    this.#tried.add(next.ws);
    return next;
  }

  /** Notes that a server named this leader. Returns false if it was tried in this round, or if too many were named. */
  startWith(leader: Endpoint): boolean {
    const listed = new Set(this.#list.endpoints.map(({ ws }) => ws));
    const unlisted = [...this.#tried].filter((ws) => !listed.has(ws)).length;
    if (this.#tried.has(leader.ws) || (!listed.has(leader.ws) && unlisted >= UNLISTED_MAX)) return false;
    this.#named = leader;
    return true;
  }

  /** Starts the next round, with the server of the list whose turn it is. */
  restart(): void {
    this.#tried.clear();
  }

  #indexOf(endpoint: Endpoint): number {
    return this.#list.endpoints.findIndex(({ ws }) => ws === endpoint.ws);
  }
}
