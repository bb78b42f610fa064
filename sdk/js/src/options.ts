// Settings of a client: plain values. Every queue has its bound here.

import type { BackoffOptions } from './backoff.js';
import type { LinkState } from './link.js';
import type { OnError } from './membership.js';
import type { OpenTelemetryApi } from './open-telemetry.js';
import type { PayloadSchema } from './schema.js';
import type { FollowLeader } from './servers.js';
import type { OpenTransport, TlsOptions } from './transport.js';

export interface BusClientOptions {
  /** Sent with the upgrade, or by an AUTH frame where there is no way to do so (browsers). */
  token?: string;
  /** Whether to follow a server that says that another one leads, if that one is not in the list of URLs. Default
   * `auto`: with a token only over TLS. */
  followLeader?: FollowLeader;
  /** Node only: a client certificate instead of a token, and authorities to trust. */
  tls?: TlsOptions;
  namespace?: string;
  /** Every delivery carries the SHA-256 of its payload: `payload_sha256` in its envelope. */
  payloadSha256?: boolean;
  /** Delays between attempts to connect (of several servers all are tried before each delay), and to subscribe again where the server does not say how long to wait. */
  backoff?: BackoffOptions;
  /** After trying to connect for this long everything ends with `Unreachable`; absent = never. */
  giveUpAfterMs?: number;
  /** A connection on which nothing arrives for this long, answers to pings included, is given up. */
  idleTimeoutMs?: number;
  /** Publishes that are not confirmed yet; at this number the next one is refused with `QueueFull`. */
  publishesInflightMax?: number;
  /** Characters of publishes that are not confirmed yet; a larger event is sent alone. With less than
   * `frameBytesMax`, `waitForRoom()` waits for the confirmation of everything. */
  publishCharsInflightMax?: number;
  /** Largest frame in bytes: a larger publish is refused here. The server closes connections that send more. */
  frameBytesMax?: number;
  /** What payloads of a topic must look like, by the topic's name: checked on publish and on receipt. */
  schemas?: Record<string, PayloadSchema>;
  /** What went wrong and nobody else was told of: publishes that failed and were not awaited (`PublishFailed`), a
   * connection that was lost or cannot be made (`Disconnected`), errors the server sends unasked, handlers that throw.
   * Without it the console is told. */
  onError?: OnError;
  /** `reason` is why there is no connection. */
  onState?: (state: LinkState, reason?: string) => void;
  /** The package `@opentelemetry/api`, if the program traces: publishes carry the caller's context, and handlers run in
   * that of their message. */
  openTelemetry?: OpenTelemetryApi;
  /** Another way to connect, for tests and for runtimes with sockets of their own. */
  openTransport?: OpenTransport;
}

export const DEFAULTS = {
  idleTimeoutMs: 30_000,
  publishesInflightMax: 1024,
  publishCharsInflightMax: 64 << 20,
  frameBytesMax: 1 << 20,
} as const;
