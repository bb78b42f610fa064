// The WebSocket of the package `ws`. The only file that needs it; the `browser` field of package.json leaves it out.

import type { Socket } from 'node:net';

import WebSocket from 'ws';

import { CLOSE_NORMAL, CLOSE_TOO_LARGE, type Transport, type TransportEvents } from './transport.js';

export function openNodeTransport(url: string, token: string | undefined, events: TransportEvents): Transport {
  const headers = token === undefined ? {} : { authorization: `Bearer ${token}` };
  const socket = new WebSocket(url, { headers, perMessageDeflate: false });
  let stream: Socket | undefined;
  let status: number | undefined;
  let failure: string | undefined;

  socket.on('upgrade', (response) => {
    stream = response.socket;
  });
  socket.on('unexpected-response', (_request, response) => {
    status = response.statusCode;
    failure = `the server answered with status ${status}`;
    socket.terminate();
  });
  socket.on('open', () => events.opened());
  socket.on('message', (data) => events.received(data.toString()));
  socket.on('error', (error) => {
    failure ??= error.message || String(error);
  });
  socket.on('close', (code, reason) => {
    stream = undefined;
    socket.removeAllListeners();
    // `ws` may still report an error of the dying socket, which without a listener would end the process.
    socket.on('error', () => {});
    events.ended({
      reason: failure ?? (reason.toString() || `closed with code ${code}`),
      oversize: code === CLOSE_TOO_LARGE,
      ...(status === undefined ? {} : { status }),
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
