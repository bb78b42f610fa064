// Keeps one connection after another: connects to one of several servers, notices silence, waits between attempts. A link
// knows no frames.

import type { BackoffOptions } from './backoff.js';
import type { Endpoint } from './endpoint.js';
import { type BusError, Disconnected, Unreachable } from './errors.js';
import { type NextStep, Outage } from './outage.js';
import type { ServerList } from './servers.js';
import {
  defaultTransport,
  type OpenTransport,
  type TlsOptions,
  type Transport,
  type TransportEnd,
} from './transport.js';

/** A connection is asked for a sign of life twice before it is given up. Counted in beats and not in time, because
 * browsers slow down the timers of hidden pages. */
const SILENT_BEATS_MAX = 3;
/** How long a goodbye may take. */
const CLOSE_MS_MAX = 2_000;
/** Servers whose last reason is remembered. */
const TOLD_MAX = 100;

export type LinkState = 'connecting' | 'open' | 'waiting' | 'closed';

export interface LinkOptions {
  servers: ServerList;
  token: string | undefined;
  backoff: BackoffOptions;
  idleTimeoutMs: number;
  giveUpAfterMs: number;
  tls: TlsOptions | undefined;
  openTransport: OpenTransport | undefined;
}

export interface LinkEvents {
  opened(tokenSent: boolean): void;
  /** Returns whether the text came from a server that leads. */
  received(text: string): boolean;
  /** Nothing was heard for a while: say something that will be answered. */
  silent(): void;
  lost(end: TransportEnd): void;
  /** There is no connection, for a reason that was not told since the last one. Another attempt follows. */
  disconnected(error: Disconnected): void;
  /** There will be no more connections. */
  failed(error: BusError): void;
  /** `reason` is given with `waiting`, and with `closed` unless the client was closed by its owner. */
  changed(state: LinkState, reason?: string): void;
}

export class Link {
  readonly #options: LinkOptions;
  readonly #events: LinkEvents;
  readonly #outage: Outage;
  #openTransport: OpenTransport | undefined;
  /** The server that is connected to, or tried. */
  #endpoint: Endpoint | undefined;
  #transport: Transport | undefined;
  #state: LinkState = 'connecting';
  #closing = false;
  #heard = false;
  /** Something was received from a server that leads. */
  #used = false;
  /** The server said that it does not lead, and which one does. */
  #moved: { leader: string | undefined } | undefined;
  #silentBeats = 0;
  #beat: ReturnType<typeof setInterval> | undefined;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #whenClosed: (() => void)[] = [];
  /** Why the last connection or attempt ended; absent while there is a connection. */
  #reason: string | undefined;
  /** The last reason that was told about each server since the last connection that was in use. */
  readonly #told = new Map<string, string>();

  constructor(options: LinkOptions, events: LinkEvents) {
    this.#options = options;
    this.#events = events;
    this.#outage = new Outage(options.servers, options.backoff, options.giveUpAfterMs);
    this.#openTransport = options.openTransport;
  }

  start(): void {
    this.#go(this.#outage.next());
  }

  /** The server that there is a connection to. */
  get endpoint(): Endpoint | undefined {
    return this.#state === 'open' ? this.#endpoint : undefined;
  }

  get state(): LinkState {
    return this.#state;
  }

  /** Why there is no connection, if there is a reason yet. */
  get reason(): string | undefined {
    return this.#reason;
  }

  send(text: string): void {
    this.#transport?.send(text);
  }

  /** Gives the present connection up; another one is made. */
  drop(reason: string): void {
    this.#transport?.abort(reason);
  }

  /** The server at the other end does not lead: another one is connected to, the leader if it may be followed. */
  moved(reason: string, leader: string | undefined): void {
    if (!this.#transport) return;
    this.#moved = { leader };
    this.drop(reason);
  }

  /** Resolves when the connection is gone. Frames that the server sends meanwhile are still received. */
  close(): Promise<void> {
    if (this.#state === 'closed') return Promise.resolve();
    const closed = new Promise<void>((resolve) => this.#whenClosed.push(resolve));
    if (this.#closing) return closed;
    this.#closing = true;
    clearTimeout(this.#timer);
    if (!this.#transport) {
      this.#finish();
    } else if (this.#state === 'open') {
      const transport = this.#transport;
      this.#timer = setTimeout(() => transport.abort('the server did not say goodbye'), CLOSE_MS_MAX);
      transport.close();
    } else {
      this.#transport.abort('closed while connecting');
    }
    return closed;
  }

  async #connect(endpoint: Endpoint): Promise<void> {
    this.#endpoint = endpoint;
    this.#change('connecting');
    try {
      this.#openTransport ??= await defaultTransport(this.#options.tls);
      if (this.#closing) return;
      this.#transport = this.#openTransport(endpoint.ws, this.#options.token, {
        opened: () => this.#opened(),
        received: (text) => this.#received(text),
        ended: (end) => this.#ended(endpoint, end),
      });
    } catch (error) {
      // No WebSocket to be had here, or not for this URL: another attempt would end the same way.
      this.#fail(new Unreachable(endpoint.ws, error instanceof Error ? error.message : String(error)));
      return;
    }
    this.#heard = this.#used = false;
    this.#moved = undefined;
    this.#silentBeats = 0;
    this.#beat = setInterval(() => this.#tick(), this.#options.idleTimeoutMs / SILENT_BEATS_MAX);
  }

  #opened(): void {
    const transport = this.#transport;
    if (!transport || this.#closing) return;
    this.#heard = true;
    this.#reason = undefined;
    this.#change('open');
    this.#events.opened(transport.tokenSent);
  }

  #received(text: string): void {
    const transport = this.#transport;
    this.#heard = true;
    const leads = this.#events.received(text);
    // The listener may have ended this connection.
    if (!leads || this.#transport !== transport || this.#used) return;
    this.#used = true;
    this.#told.clear();
  }

  #tick(): void {
    this.#silentBeats = this.#heard ? 0 : this.#silentBeats + 1;
    this.#heard = false;
    if (this.#silentBeats >= SILENT_BEATS_MAX) {
      this.drop(`nothing was heard for ${this.#options.idleTimeoutMs / 1000} s`);
    } else if (this.#silentBeats > 0 && this.#state === 'open') {
      this.#events.silent();
    }
  }

  #ended(endpoint: Endpoint, end: TransportEnd): void {
    const wasOpen = this.#state === 'open';
    this.#transport = undefined;
    clearInterval(this.#beat);
    clearTimeout(this.#timer);
    if (this.#closing) return this.#finish();
    this.#reason = end.reason;
    const followed = this.#note(endpoint, end, wasOpen);
    if (wasOpen) this.#events.lost(end);
    // A listener that was told of the loss may have closed the client.
    if (this.#closing) return;
    const next = this.#outage.next();
    if ('error' in next) return this.#fail(next.error);
    if (!followed) this.#tell(endpoint, this.#reason);
    if (!this.#closing) this.#go(next);
  }

  /** Notes how the connection or attempt ended. Returns whether the server named a leader that is connected to next. */
  #note(endpoint: Endpoint, end: TransportEnd, wasOpen: boolean): boolean {
    const moved = this.#moved ?? (end.moved ? { leader: end.leader } : undefined);
    if (this.#used) this.#outage.lost(endpoint, end);
    if (!moved) {
      if (wasOpen) this.#told.clear();
      if (!this.#used && wasOpen) this.#outage.closed(endpoint, end.reason);
      else if (!this.#used) this.#outage.failed(endpoint, end);
      return false;
    }
    const named = moved.leader;
    const leader = named === undefined ? undefined : this.#options.servers.leader(named, endpoint);
    const refused = typeof leader === 'string' ? leader : undefined;
    if (refused) this.#reason = `${end.reason} (not followed: ${refused})`;
    const followed = typeof leader === 'string' ? undefined : leader;
    this.#outage.moved(endpoint, this.#reason ?? end.reason, followed);
    return followed !== undefined;
  }

  /** Tells why a server is of no use, unless that was told already. */
  #tell(endpoint: Endpoint, reason: string): void {
    if (this.#told.get(endpoint.ws) === reason) return;
    if (this.#told.size >= TOLD_MAX) this.#told.clear();
    this.#told.set(endpoint.ws, reason);
    this.#events.disconnected(new Disconnected(endpoint.ws, reason));
  }

  /** Tries the next server, now or after a while. */
  #go(next: NextStep): void {
    if ('error' in next) return this.#fail(next.error);
    const { endpoint, delayMs } = next;
    if (delayMs === undefined) return void this.#connect(endpoint);
    this.#change('waiting', this.#reason);
    this.#timer = setTimeout(() => void this.#connect(endpoint), delayMs);
  }

  #fail(error: BusError): void {
    this.#finish(error.message);
    this.#events.failed(error);
  }

  #finish(reason?: string): void {
    this.#closing = true;
    clearTimeout(this.#timer);
    this.#change('closed', reason);
    for (const resolve of this.#whenClosed.splice(0)) resolve();
  }

  #change(state: LinkState, reason?: string): void {
    if (this.#state === state && state !== 'connecting') return;
    this.#state = state;
    this.#events.changed(state, reason);
  }
}
