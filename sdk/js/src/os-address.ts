// Where the loop is, and the transport that leads there.

import { Endpoint } from './endpoint.js';
import { BadUrl } from './errors.js';
import { defaultTransport, type OpenTransport, type TlsOptions } from './transport.js';

const OS_PATH = '/os';

/** A WebSocket's address with the loop's path. */
export function osUrl(address: string): string {
  const url = new URL(new Endpoint(address).ws);
  if (url.pathname === '/') url.pathname = OS_PATH;
  return url.href;
}

export function isUrl(address: string): boolean {
  return /^[a-z][a-z0-9+.-]*:\/\//i.test(address);
}

export interface Way {
  /** A URL or a path. */
  place: string;
  open: OpenTransport;
}

export async function wayTo(
  address: string | undefined,
  openTransport: OpenTransport | undefined,
  tls: TlsOptions | undefined,
): Promise<Way> {
  if (address !== undefined && isUrl(address)) {
    return { place: osUrl(address), open: openTransport ?? (await defaultTransport(tls)) };
  }
  if (openTransport) return { place: address ?? '', open: openTransport };
  if (typeof globalThis.process?.versions?.node !== 'string') {
    throw new BadUrl(address ?? '', 'give ws://HOST:PORT/; only Node reaches Unix sockets');
  }
  const { defaultSocket, openUnixTransport } = await import('./unix-transport.js');
  return { place: address ?? defaultSocket(), open: openUnixTransport };
}
