// A connection, seen from above: text goes out, text comes in, and it ends once.

export interface TransportEnd {
  reason: string;
  /** The server closed because a frame was too large. */
  oversize: boolean;
  /** The server closed because it does not lead its store. */
  moved?: boolean;
  /** The URL of the leader as the server wrote it, if it named one. */
  leader?: string;
  /** The status with which the server refused the upgrade, where it can be seen. */
  status?: number;
  /** What the server said about that refusal, where it can be seen. */
  detail?: string;
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

/** Node only: what TLS is told beside the URL, each as the text of a PEM file. */
export interface TlsOptions {
  /** A client certificate with its chain, and its private key: they show who the client is, instead of a token. */
  cert?: string;
  key?: string;
  /** Authorities to trust instead of Node's own. */
  ca?: string;
}

export type OpenTransport = (url: string, token: string | undefined, events: TransportEvents) => Transport;

export const CLOSE_NORMAL = 1000;
/** Never sent: there was no goodbye, or no connection. */
export const CLOSE_ABNORMAL = 1006;
export const CLOSE_TOO_LARGE = 1009;
/** "Service restart": the server does not lead its store, and names the leader as the reason if it can. */
export const CLOSE_MOVED = 1012;

/** Returns what a close frame says about the lead. A proxy may close with this code, too, and with any text. */
export function movedBy(code: number, reason: string): Pick<TransportEnd, 'moved' | 'leader'> {
  if (code !== CLOSE_MOVED) return {};
  return { moved: true, ...(reason.includes('://') ? { leader: reason } : {}) };
}

/** Returns why something failed. An address with several numbers, as `localhost`, fails with an error that has no text
 * of its own and holds one error per number; `fetch` hides the reason in `cause`. */
export function reasonOf(error: unknown): string {
  if (error instanceof AggregateError && error.errors.length > 0) return error.errors.map(reasonOf).join('; ');
  if (!(error instanceof Error)) return String(error);
  if (error.cause instanceof Error) return reasonOf(error.cause);
  return error.message || ('code' in error ? String(error.code) : error.name);
}

/** Node gets the package `ws`, which is loaded there only: Node 20 has no WebSocket of its own, and the standard one
 * can neither send a token with the upgrade nor end without a goodbye. */
export async function defaultTransport(tls?: TlsOptions): Promise<OpenTransport> {
  if (typeof globalThis.process?.versions?.node === 'string') {
    const { openNodeTransport } = await import('./node-transport.js');
    return (url, token, events) => openNodeTransport(url, token, events, tls);
  }
  if (tls) throw new Error('the option tls is for Node: a browser has certificates of its own');
  return (await import('./browser-transport.js')).openBrowserTransport;
}
