// Where a server is: one URL for the WebSocket, from which the HTTP address follows.

import { BadUrl } from './errors.js';

const URL_DEFAULT = 'ws://127.0.0.1:7070';
/** Of a broker itself. Behind `wss://` and `https://` there is a proxy as a rule, on the port of the scheme. */
const PORT_DEFAULT = '7070';

/** `BUS_URL`, which may list several servers, or a broker on this machine. Browsers have no environment. */
export function defaultUrl(): string {
  return globalThis.process?.env?.['BUS_URL'] || URL_DEFAULT;
}

export class Endpoint {
  readonly #url: URL;
  readonly #payloadSha256: boolean;

  /** `ws[s]://HOST[:PORT][/PATH]`; `http[s]://` is taken as the same place. Without a port: 443 with TLS, else 7070. */
  constructor(text: string, namespace?: string, payloadSha256 = false) {
    const match = /^(ws|http)(s?):\/\/(.*)$/i.exec(text);
    if (!match) throw new BadUrl(text, 'give ws://HOST:PORT/');
    const rest = match[3] ?? '';
    try {
      this.#url = new URL(`ws${match[2]}://${rest}`);
    } catch {
      throw new BadUrl(text, 'give ws://HOST:PORT/');
    }
    if (this.#url.search || this.#url.hash) {
      throw new BadUrl(text, 'leave query and fragment out, the namespace is an option of its own');
    }
    // Asked of the text: a `URL` hides a port that is its scheme's default.
    const portGiven = /^[^/]*:\d+(\/|$)/.test(rest);
    if (!portGiven && !match[2]) this.#url.port = PORT_DEFAULT;
    if (namespace !== undefined) this.#url.searchParams.set('namespace', namespace);
    this.#payloadSha256 = payloadSha256;
  }

  get tls(): boolean {
    return this.#url.protocol === 'wss:';
  }

  /** Host and port, for comparing two addresses. */
  get place(): string {
    return `${this.#url.hostname}:${this.#url.port || (this.tls ? '443' : '80')}`;
  }

  get ws(): string {
    if (!this.#payloadSha256) return this.#url.href;
    const url = new URL(this.#url.href);
    url.searchParams.set('payload_sha256', 'true');
    return url.href;
  }

  /** An address of the HTTP interface, in the same namespace. */
  http(path: string): string {
    const url = new URL(this.#url.href.replace(/^ws/, 'http'));
    url.pathname = path;
    return url.href;
  }
}
