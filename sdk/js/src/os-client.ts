// A client of the CQRS loop: requests with exactly one outcome each, and events.
//
// The client has one connection, which is not made again when it is lost: requests under way then end with
// `ConnectionLost`, and only the caller knows whether asking twice does harm.

import { Deferred, refusal } from './deferred.js';
import { BadMessage, Closed, ConnectionLost, QueueFull, Rejected, TimedOut, TooLarge, Unreachable } from './errors.js';
import { wayTo } from './os-address.js';
import { decode, encode, OsError, type OsKind, type OsMessage, type OsMetadata } from './os-message.js';
import { OS_DEFAULTS, type OsClientOptions, type OsRequestOptions } from './os-options.js';
import { outside } from './outside.js';
import type { Transport, TransportEnd } from './transport.js';
import { uuidv7 } from './uuid.js';

/** UTF-8 needs at most this many bytes for a UTF-16 unit. */
const BYTES_PER_UNIT_MAX = 3;
/** How long a goodbye may take. */
const CLOSE_MS_MAX = 2_000;

interface Waiting {
  settle(reply: OsMessage): void;
  fail(error: Error): void;
}

export class OsClient {
  readonly #options: OsClientOptions & typeof OS_DEFAULTS;
  readonly #waiting = new Map<string, Waiting>();
  readonly #opened = new Deferred<void>();
  readonly #ended = new Deferred<void>();
  #place = '';
  #transport: Transport | undefined;
  /** Why nothing can be asked any more. */
  #end: Error | undefined;
  #whenIdle: (() => void)[] = [];

  private constructor(options: OsClientOptions) {
    this.#options = { ...OS_DEFAULTS, ...options };
  }

  /**
   * Resolves once connected, and where there is a token to tell, once the server has taken it.
   * @param address `ws://HOST:PORT` (the loop is at `/os`), or on Node the path of the server's socket. Without one, on
   * Node: `MILLRACE_SOCKET`, else the socket of a server on this machine.
   */
  static async connect(address?: string, options: OsClientOptions = {}): Promise<OsClient> {
    const client = new OsClient(options);
    await client.#open(address);
    return client;
  }

  get connected(): boolean {
    return this.#transport !== undefined && this.#end === undefined;
  }

  /** Changes something; resolves with the data of the reply. */
  command<Reply = unknown>(type: string, data?: unknown, options?: OsRequestOptions): Promise<Reply> {
    return this.request<Reply>('command', type, data, options);
  }

  /** Asks something; resolves with the data of the reply. */
  query<Reply = unknown>(type: string, data?: unknown, options?: OsRequestOptions): Promise<Reply> {
    return this.request<Reply>('query', type, data, options);
  }

  /**
   * Rejects with `OsError` if the outcome is an error, `TimedOut` if none came in time (the request may still be
   * carried out), `ConnectionLost` if the connection is gone, `QueueFull` at `requestsInflightMax`, or the reason of `signal`.
   */
  request<Reply = unknown>(
    kind: 'command' | 'query',
    type: string,
    data?: unknown,
    options: OsRequestOptions = {},
  ): Promise<Reply> {
    const { signal, timeoutMs = this.#options.timeoutMs } = options;
    if (signal?.aborted) return refusal(asError(signal.reason));
    const { requestsInflightMax } = this.#options;
    if (this.#waiting.size >= requestsInflightMax) {
      return refusal(new QueueFull(`${requestsInflightMax} requests`, 'wait for their outcome'));
    }
    const done = new Deferred<Reply>();
    let sent: OsMetadata;
    try {
      sent = this.#send(kind, type, data, options);
    } catch (error) {
      return refusal(asError(error));
    }
    const timer = setTimeout(() => waiting.fail(new TimedOut(timeoutMs)), timeoutMs);
    const abort = (): void => waiting.fail(asError(signal?.reason));
    const finish = (): void => {
      clearTimeout(timer);
      signal?.removeEventListener('abort', abort);
      this.#waiting.delete(sent.id);
      if (this.#waiting.size === 0) for (const resolve of this.#whenIdle.splice(0)) resolve();
    };
    const waiting: Waiting = {
      settle(reply) {
        finish();
        done.resolve(reply.data as Reply);
      },
      fail(error) {
        finish();
        done.reject(error);
      },
    };
    signal?.addEventListener('abort', abort);
    this.#waiting.set(sent.id, waiting);
    return done.promise;
  }

  /**
   * Says that something happened. Resolves when it was handed to the socket: nobody answers an event, and one that the
   * server refuses is told to `onError`.
   */
  emit(type: string, data?: unknown, options: Pick<OsRequestOptions, 'correlation' | 'causation'> = {}): Promise<void> {
    try {
      this.#send('event', type, data, options);
      return Promise.resolve();
    } catch (error) {
      return refusal(asError(error));
    }
  }

  /** Takes no more, waits for the outcomes of requests under way (at most until they time out), and says goodbye. */
  async close(): Promise<void> {
    const wasOpen = this.#end === undefined;
    this.#end ??= new Closed();
    if (wasOpen && this.#waiting.size > 0) await new Promise<void>((resolve) => this.#whenIdle.push(resolve));
    const transport = this.#transport;
    if (!transport) return;
    const timer = setTimeout(() => transport.abort('the server did not say goodbye'), CLOSE_MS_MAX);
    transport.close();
    await this.#ended.promise;
    clearTimeout(timer);
  }

  async #open(address: string | undefined): Promise<void> {
    const { token, tls, openTransport } = this.#options;
    const { place, open } = await wayTo(address, openTransport, tls);
    this.#place = place;
    const transport = open(place, token, {
      opened: () => this.#opened.resolve(),
      received: (text) => this.#received(text),
      ended: (end) => this.#lost(end),
    });
    this.#transport = transport;
    await this.#opened.promise;
    if (token === undefined || transport.tokenSent) return;
    try {
      await this.command('Syscall.Authenticate', { token });
    } catch (error) {
      transport.abort('not let in');
      throw error;
    }
  }

  #send(kind: OsKind, type: string, data: unknown, lineage: OsRequestOptions): OsMetadata {
    if (this.#end) throw this.#end;
    if (!this.#transport) throw new ConnectionLost('not connected');
    const { lineBytesMax, unsentBytesMax } = this.#options;
    if ((this.#transport.unsentBytes ?? 0) >= unsentBytesMax) {
      throw new QueueFull(`${unsentBytesMax} bytes`, 'wait to be written');
    }
    const { correlation, causation } = lineage;
    const metadata: OsMetadata = {
      id: uuidv7(),
      timestamp: Date.now(),
      ...(correlation === undefined ? {} : { correlation }),
      ...(causation === undefined ? {} : { causation }),
    };
    const text = encode({ kind, type, metadata }, data);
    if (text.length * BYTES_PER_UNIT_MAX > lineBytesMax) {
      const bytes = new TextEncoder().encode(text).length;
      if (bytes > lineBytesMax) throw new TooLarge(bytes, `at most ${lineBytesMax}`, 'line of the message');
    }
    this.#transport.send(text);
    return metadata;
  }

  #received(text: string): void {
    const message = decode(text);
    if (!message) return this.#tell(new BadMessage(text));
    const { kind, metadata } = message;
    const waiting = metadata.causation === undefined ? undefined : this.#waiting.get(metadata.causation);
    if (kind === 'error') {
      const error = OsError.of(message);
      if (waiting) waiting.fail(error);
      else this.#tell(error);
    } else if (kind === 'reply') {
      // A reply that nobody waits for came too late.
      waiting?.settle(message);
    }
  }

  #lost(end: TransportEnd): void {
    const wasOpen = this.connected;
    this.#transport = undefined;
    const lost = new ConnectionLost(end.reason);
    this.#end ??= lost;
    // Does nothing if it was open before.
    const { status } = end;
    this.#opened.reject(
      status === undefined ? new Unreachable(this.#place, end.reason) : new Rejected(this.#place, status, end.detail),
    );
    for (const waiting of [...this.#waiting.values()]) waiting.fail(lost);
    this.#ended.resolve();
    const { onEnd } = this.#options;
    if (wasOpen && onEnd) outside(() => onEnd(lost));
  }

  #tell(error: Error): void {
    const { onError } = this.#options;
    if (onError) outside(() => onError(error));
  }
}

function asError(reason: unknown): Error {
  return reason instanceof Error ? reason : new Error(String(reason));
}
