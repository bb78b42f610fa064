// A subscription on the client's side: what was asked, who hears of it, and how far the server has followed.

import { Deferred } from './deferred.js';
import { type BusError, HandlerFailed } from './errors.js';
import type { MessageFrame, Position, SubscribeFrame } from './frames.js';
import { Leases } from './leases.js';

export const MAX_INFLIGHT_DEFAULT = 32;

export type SubscribeRequest = Omit<SubscribeFrame, 'type' | 'rid'>;
/** May be async. An error it throws goes to `onError` and changes nothing else: ACK and NACK are the handler's. */
export type OnMessage<T = unknown> = (message: MessageFrame<T>) => unknown;
/** `message` is given when it is about one. */
export type OnError = (error: BusError, message?: MessageFrame) => void;

/** `idle`: this connection was not asked. `asked`: SUBSCRIBE is under way. */
type Phase = 'idle' | 'asked' | 'member';

export class Membership {
  readonly ready = new Deferred<Position[]>();
  readonly leases = new Leases();
  readonly #onMessage: OnMessage;
  readonly #onError: OnError;
  phase: Phase = 'idle';
  request: SubscribeRequest & { max_inflight: number };
  /** The largest window there has been: so many leases may be out. */
  windowMax: number;
  /** Whether the server has ever taken it: who asked knows that it is one, and is not to ask again. */
  confirmed = false;
  /** Set when nobody wants it any more. */
  ended = false;

  constructor(request: SubscribeRequest, onMessage: OnMessage, onError: OnError) {
    this.request = { max_inflight: MAX_INFLIGHT_DEFAULT, ...request };
    this.windowMax = this.request.max_inflight;
    this.#onMessage = onMessage;
    this.#onError = onError;
  }

  subscribed(positions: Position[]): void {
    this.phase = 'member';
    this.confirmed = true;
    // A seek is asked for once; after a reconnect the group goes on from its commit.
    if (this.request.from?.reset) this.request.from = { ...this.request.from, reset: false };
    this.ready.resolve(positions);
  }

  resize(maxInflight: number): void {
    this.request.max_inflight = maxInflight;
    this.windowMax = Math.max(this.windowMax, maxInflight);
  }

  deliver(message: MessageFrame): void {
    try {
      const result = this.#onMessage(message);
      if (isThenable(result)) result.then(undefined, (error: unknown) => this.#handlerFailed(error, message));
    } catch (error) {
      this.#handlerFailed(error, message);
    }
  }

  report(error: BusError, message?: MessageFrame): void {
    this.#onError(error, message);
  }

  /** Ends the membership. A caller that asked for the end needs no report. */
  end(error: BusError, { report }: { report: boolean }): void {
    if (this.ended) return;
    this.ended = true;
    this.leases.clear();
    this.ready.reject(error);
    if (report) this.report(error);
  }

  #handlerFailed(error: unknown, message: MessageFrame): void {
    this.report(new HandlerFailed(`the handler of ${message.topic} in group ${message.group}`, error), message);
  }
}

function isThenable(value: unknown): value is PromiseLike<unknown> {
  return typeof (value as PromiseLike<unknown> | undefined)?.then === 'function';
}
