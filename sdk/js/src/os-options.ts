// Settings of a client of the loop: plain values. Every queue has its bound here.

import type { OpenTransport, TlsOptions } from './transport.js';

export interface OsClientOptions {
  /** Sent with the upgrade of a WebSocket, or as `Syscall.Authenticate` where there is no way to do so (browsers, the
   * Unix socket). */
  token?: string;
  /** Node only, over WebSocket: a client certificate instead of a token, and authorities to trust. */
  tls?: TlsOptions;
  /** How long a request waits for its outcome unless it says otherwise. The server's own bound is 30 s. */
  timeoutMs?: number;
  /** Requests that wait for their outcome; at this number the next one is refused with `QueueFull`. */
  requestsInflightMax?: number;
  /** Bytes that wait to be written; at this number the next message is refused with `QueueFull`. */
  unsentBytesMax?: number;
  /** Longest message in bytes: a longer one is refused here, as the server would. */
  lineBytesMax?: number;
  /** What went wrong and nobody else was told of: errors about events, and those the server sends unasked. */
  onError?: (error: Error) => void;
  /** The connection is lost. Not called for one that `close()` ended. */
  onEnd?: (error: Error) => void;
  /** Another way to connect, for tests and for runtimes with sockets of their own. */
  openTransport?: OpenTransport;
}

export interface OsRequestOptions {
  timeoutMs?: number;
  /** Groups messages of one undertaking; the outcome carries it too. */
  correlation?: string;
  /** The id of the message this one follows from. */
  causation?: string;
  /** Stops waiting. The request may still be carried out. */
  signal?: AbortSignal;
}

export const OS_DEFAULTS = {
  timeoutMs: 35_000,
  requestsInflightMax: 1024,
  unsentBytesMax: 8 << 20,
  lineBytesMax: 16_384,
};
