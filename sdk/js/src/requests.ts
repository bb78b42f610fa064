// Requests that wait for the server's answer. Publishes outlive connections: each new one gets again what the last one
// did not confirm, byte for byte, so that its id makes the server store it once. Everything else ends with its
// connection. No I/O in it: it is told when a connection came or went.

import { type BusError, ConnectionLost, Refused, TooLarge } from './errors.js';
import type { ClientFrame, PublishBatchFrame, PublishFrame, ServerFrame } from './frames.js';
import type { Room } from './room.js';

/** Refusals of a server that is about to close the connection. */
export const GOING_CODES: readonly string[] = ['shutting_down', 'moved'];
/** UTF-8 needs at most this many bytes for a UTF-16 unit. */
const BYTES_PER_UNIT_MAX = 3;

/** Called from inside the arrival of the answer, so that what arrives behind it finds it done. */
export interface Waiter {
  settle(answer: ServerFrame): void;
  fail(error: BusError): void;
}

interface Pending extends Waiter {
  /** The frame as it was sent, if it is to be sent again. */
  publish?: string;
}

export class Requests {
  readonly #send: (text: string) => void;
  readonly #room: Room;
  readonly #frameBytesMax: number;
  /** In the order they were asked, which is the order in which they are sent again. */
  readonly #pending = new Map<number, Pending>();
  #lastRid = 0;
  #connected = false;
  /** Why there is no connection. */
  #notConnected = 'not connected yet';
  #whenFlushed: (() => void)[] = [];

  constructor(send: (text: string) => void, room: Room, frameBytesMax: number) {
    this.#send = send;
    this.#room = room;
    this.#frameBytesMax = frameBytesMax;
  }

  get connected(): boolean {
    return this.#connected;
  }

  /** Throws what makes the publish impossible here and now. */
  publish(frame: PublishFrame | PublishBatchFrame, waiter: Waiter): void {
    const rid = this.#lastRid + 1;
    const text = JSON.stringify({ ...frame, rid });
    if (text.length * BYTES_PER_UNIT_MAX > this.#frameBytesMax) {
      const bytes = utf8Length(text);
      if (bytes > this.#frameBytesMax) throw new TooLarge(bytes, `at most ${this.#frameBytesMax}`);
    }
    this.#room.take(text.length);
    this.#lastRid = rid;
    this.#pending.set(rid, { publish: text, settle: (answer) => waiter.settle(answer), fail: (e) => waiter.fail(e) });
    if (this.#connected) this.#send(text);
  }

  /** Asks something of this connection. */
  ask(frame: ClientFrame, waiter: Waiter): void {
    if (!this.#connected) return waiter.fail(new ConnectionLost(this.#notConnected));
    const rid = ++this.#lastRid;
    this.#pending.set(rid, waiter);
    this.#send(JSON.stringify({ ...frame, rid }));
  }

  /** Says something that is answered only to refuse it. */
  tell(frame: ClientFrame): void {
    if (this.#connected) this.#send(JSON.stringify(frame));
  }

  opened(): void {
    this.#connected = true;
  }

  /** Apart from `opened`, because subscriptions come first. */
  resend(): void {
    for (const { publish } of this.#pending.values()) if (publish !== undefined) this.#send(publish);
  }

  /** There was an attempt to connect, and this came of it. */
  unreachable(reason: string): void {
    this.#notConnected = `not connected just now: ${reason}`;
  }

  lost(reason: string): void {
    this.#connected = false;
    for (const [rid, pending] of this.#pending) {
      if (pending.publish === undefined) this.#take(rid)?.fail(new ConnectionLost(reason));
    }
  }

  /** Which frame was too large the server cannot say, having refused to read it; it was none but the largest. Sent
   * again it would cost the next connection too. */
  failLargest(): void {
    const size = (rid: number): number => this.#pending.get(rid)?.publish?.length ?? 0;
    const rids = [...this.#pending.keys()];
    if (rids.length === 0) return;
    const largest = rids.reduce((a, b) => (size(b) > size(a) ? b : a));
    const text = this.#pending.get(largest)?.publish;
    if (text !== undefined) {
      this.#take(largest)?.fail(new TooLarge(utf8Length(text), "fewer than the server's limit"));
    }
  }

  answered(rid: number, answer: ServerFrame): void {
    // A server that is about to go or does not lead answers like one that is gone: the next connection gets the publish
    // again.
    const stopping = answer.type === 'ERROR' && GOING_CODES.includes(answer.code);
    if (stopping && this.#pending.get(rid)?.publish !== undefined) return;
    const pending = this.#take(rid);
    if (answer.type === 'ERROR') pending?.fail(new Refused(answer));
    else pending?.settle(answer);
  }

  /** Resolves when no publish waits any more, however it ended. */
  flushed(): Promise<void> {
    if (!this.#hasPublishes()) return Promise.resolve();
    return new Promise((resolve) => this.#whenFlushed.push(resolve));
  }

  failAll(error: BusError): void {
    this.#connected = false;
    for (const rid of [...this.#pending.keys()]) this.#take(rid)?.fail(error);
  }

  #take(rid: number): Pending | undefined {
    const pending = this.#pending.get(rid);
    this.#pending.delete(rid);
    if (pending?.publish !== undefined) {
      this.#room.give(pending.publish.length);
      if (this.#whenFlushed.length > 0 && !this.#hasPublishes()) {
        for (const resolve of this.#whenFlushed.splice(0)) resolve();
      }
    }
    return pending;
  }

  #hasPublishes(): boolean {
    for (const { publish } of this.#pending.values()) if (publish !== undefined) return true;
    return false;
  }
}

function utf8Length(text: string): number {
  return new TextEncoder().encode(text).length;
}
