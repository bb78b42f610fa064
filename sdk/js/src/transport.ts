// One connection, seen from above: text goes out, text comes in, and it ends once.

export interface TransportEnd {
  reason: string;
  /** The server closed because a frame was too large. */
  oversize: boolean;
  /** The status with which the server refused the upgrade, where it can be seen. */
  status?: number;
}

export interface TransportEvents {
  opened(): void;
  received(text: string): void;
  /** Called once, at the latest after `abort`; nothing is called after it. */
  ended(end: TransportEnd): void;
}

export interface Transport {
  /** Whether the token went with the upgrade; if not, an AUTH frame has to carry it. */
  readonly tokenSent: boolean;
  /** Bytes that were sent and wait to be written, where that can be seen. */
  readonly unsentBytes?: number;
  send(text: string): void;
  /** Says goodbye after what was sent before. */
  close(): void;
  /** Ends without a goodbye. */
  abort(reason: string): void;
}

export type OpenTransport = (url: string, token: string | undefined, events: TransportEvents) => Transport;

export const CLOSE_NORMAL = 1000;
export const CLOSE_TOO_LARGE = 1009;

/** Node gets the package `ws`, which is loaded there only: Node 20 has no WebSocket of its own, and the standard one
 * can neither send a token with the upgrade nor end without a goodbye. */
export async function defaultTransport(): Promise<OpenTransport> {
  if (typeof globalThis.process?.versions?.node === 'string') {
    return (await import('./node-transport.js')).openNodeTransport;
  }
  return (await import('./browser-transport.js')).openBrowserTransport;
}
