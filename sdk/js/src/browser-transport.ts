// The WebSocket that browsers have.

import {
  CLOSE_ABNORMAL,
  CLOSE_NORMAL,
  CLOSE_TOO_LARGE,
  movedBy,
  type Transport,
  type TransportEnd,
  type TransportEvents,
} from './transport.js';

export function openBrowserTransport(url: string, _token: string | undefined, events: TransportEvents): Transport {
  const socket = new WebSocket(url);
  const end = (end: TransportEnd): void => {
    socket.onopen = socket.onmessage = socket.onclose = null;
    events.ended(end);
  };
  socket.onopen = () => events.opened();
  socket.onmessage = (event: MessageEvent<unknown>) => events.received(String(event.data));
  // An error says nothing and is always followed by a close.
  socket.onclose = ({ code, reason }: CloseEvent) =>
    end({ reason: reason || unsaid(code), oversize: code === CLOSE_TOO_LARGE, ...movedBy(code, reason) });
  return {
    tokenSent: false,
    get unsentBytes() {
      return socket.bufferedAmount;
    },
    send: (text) => socket.send(text),
    close: () => socket.close(CLOSE_NORMAL),
    abort(reason) {
      if (socket.onclose === null) return;
      // A goodbye to a silent peer may take minutes; nobody here waits for it.
      end({ reason, oversize: false });
      socket.close();
    },
  };
}

/** Browsers keep the reason of a failed connection from pages. */
function unsaid(code: number): string {
  if (code !== CLOSE_ABNORMAL) return `closed with code ${code}`;
  return 'the browser tells no reason; is the server there, and is this page its --allow-origin?';
}
