// Keeps one connection after another: connects, notices silence, waits between attempts. A link knows no frames.

import { Backoff, type BackoffOptions } from './backoff.js';
import { type BusError, Disconnected, Rejected, Unreachable } from './errors.js';
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
/** Waiting does not make a wrong token right. Any other status may come from a proxy. */
const FINAL_STATUSES = [401, 403, 404];

export type LinkState = 'connecting' | 'open' | 'waiting' | 'closed';

export interface LinkOptions {
  url: string;
  token: string | undefined;
  backoff: BackoffOptions;
  idleTimeoutMs: number;
  giveUpAfterMs: number;
  tls: TlsOptions | undefined;
  openTransport: OpenTransport | undefined;
}

export interface LinkEvents {
  opened(tokenSent: boolean): void;
  received(text: string): void;
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
  readonly #backoff: Backoff;
  #openTransport: OpenTransport | undefined;
  #transport: Transport | undefined;
  #state: LinkState = 'connecting';
  #closing = false;
  #heard = false;
  #silentBeats = 0;
  /** When the present series of failed attempts began. */
  #downSince = performance.now();
  #beat: ReturnType<typeof setInterval> | undefined;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #whenClosed: (() => void)[] = [];
  /** Why the last connection or attempt ended; absent while there is a connection. */
  #reason: string | undefined;

  constructor(options: LinkOptions, events: LinkEvents) {
    this.#options = options;
    this.#events = events;
    this.#backoff = new Backoff(options.backoff);
    this.#openTransport = options.openTransport;
  }

  start(): void {
    void this.#connect();
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

  async #connect(): Promise<void> {
    this.#change('connecting');
    try {
      this.#openTransport ??= await defaultTransport(this.#options.tls);
      if (this.#closing) return;
      this.#transport = this.#openTransport(this.#options.url, this.#options.token, {
        opened: () => this.#opened(),
        received: (text) => {
          this.#heard = true;
          this.#events.received(text);
        },
        ended: (end) => this.#ended(end),
      });
    } catch (error) {
      // No WebSocket to be had here, or not for this URL: another attempt would end the same way.
      this.#fail(new Unreachable(this.#options.url, error instanceof Error ? error.message : String(error)));
      return;
    }
    this.#heard = false;
    this.#silentBeats = 0;
    this.#beat = setInterval(() => this.#tick(), this.#options.idleTimeoutMs / SILENT_BEATS_MAX);
  }

  #opened(): void {
    const transport = this.#transport;
    if (!transport || this.#closing) return;
    this.#heard = true;
    this.#backoff.reset();
    this.#reason = undefined;
    this.#change('open');
    this.#events.opened(transport.tokenSent);
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

  #ended(end: TransportEnd): void {
    const wasOpen = this.#state === 'open';
    this.#transport = undefined;
    clearInterval(this.#beat);
    clearTimeout(this.#timer);
    if (this.#closing) return this.#finish();
    const now = performance.now();
    const news = end.reason !== this.#reason;
    this.#reason = end.reason;
    if (wasOpen) {
      this.#downSince = now;
      this.#events.lost(end);
    }
    if (end.status !== undefined && FINAL_STATUSES.includes(end.status)) {
      return this.#fail(new Rejected(this.#options.url, end.status, end.detail));
    }
    if (now - this.#downSince >= this.#options.giveUpAfterMs) {
      return this.#fail(new Unreachable(this.#options.url, end.reason));
    }
    // A listener that was told of the loss may have closed the client.
    if (this.#state === 'closed') return;
    if (news) this.#events.disconnected(new Disconnected(this.#options.url, end.reason));
    this.#change('waiting', end.reason);
    this.#timer = setTimeout(() => void this.#connect(), this.#backoff.nextMs());
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
