// The WebSocket of the package `ws`. The only file that needs it; the `browser` field of package.json leaves it out.

import type { Socket } from 'node:net';

import WebSocket from 'ws';

import {
  CLOSE_NORMAL,
  CLOSE_TOO_LARGE,
  movedBy,
  reasonOf,
  type TlsOptions,
  type Transport,
  type TransportEvents,
} from './transport.js';

/** So much of the body of a refused upgrade is read for its reason. */
const REFUSAL_CHARS_MAX = 4_096;

export function openNodeTransport(
  url: string,
  token: string | undefined,
  events: TransportEvents,
  tls: TlsOptions = {},
): Transport {
  const headers = token === undefined ? {} : { authorization: `Bearer ${token}` };
  const socket = new WebSocket(url, { headers, perMessageDeflate: false, ...tls });
  let stream: Socket | undefined;
  let status: number | undefined;
  let detail: string | undefined;
  let failure: string | undefined;

  socket.on('upgrade', (response) => {
    stream = response.socket;
  });
  socket.on('unexpected-response', (_request, response) => {
    status = response.statusCode;
    failure = `the server answered with status ${status}`;
    let body = '';
    const refused = (): void => {
      detail = detailOf(body);
      if (detail) failure += `: ${detail}`;
      socket.terminate();
    };
    response.setEncoding('utf8');
    response.on('data', (piece: string) => {
      body += piece;
      if (body.length > REFUSAL_CHARS_MAX) refused();
    });
    response.on('end', refused);
    response.on('error', refused);
  });
  socket.on('open', () => events.opened());
  socket.on('message', (data) => events.received(data.toString()));
  socket.on('error', (error) => {
    failure ??= reasonOf(error);
  });
  socket.on('close', (code, reason) => {
    stream = undefined;
    socket.removeAllListeners();
    // `ws` may still report an error of the dying socket, which without a listener would end the process.
    socket.on('error', () => {});
    events.ended({
      reason: failure ?? (reason.toString() || `closed with code ${code}`),
      oversize: code === CLOSE_TOO_LARGE,
      ...movedBy(code, reason.toString()),
      ...(status === undefined ? {} : { status }),
      ...(detail ? { detail } : {}),
    });
  });

  /** Frames of one turn of the event loop leave in one write. */
  function cork(): void {
    if (!stream || stream.writableCorked > 0) return;
    const corked = stream;
    corked.cork();
    process.nextTick(() => corked.uncork());
  }

  return {
    tokenSent: token !== undefined,
    get unsentBytes() {
      return socket.bufferedAmount;
    },
    send(text) {
      cork();
      // A failed write ends the connection, which is reported as such.
      socket.send(text, () => {});
    },
    close: () => socket.close(CLOSE_NORMAL),
    abort(reason) {
      failure ??= reason;
      socket.terminate();
    },
  };
}

/** Returns the reason in a problem document, or a short text as it is. A page of a proxy says nothing worth telling. */
function detailOf(body: string): string | undefined {
  try {
    const { detail, title } = JSON.parse(body) as { detail?: unknown; title?: unknown };
    if (typeof detail === 'string') return detail;
    return typeof title === 'string' ? title : undefined;
  } catch {
    const text = body.trim();
    return text.length > 0 && text.length <= 200 && !text.startsWith('<') ? text : undefined;
  }
}
