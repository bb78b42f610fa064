// The server's Unix socket: one message per line. Node only; the `browser` field of package.json leaves it out.

import { createConnection } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { reasonOf, type Transport, type TransportEvents } from './transport.js';

/** Longest line that is taken from the server. */
const LINE_CHARS_MAX = 16 << 20;

/** `MILLRACE_SOCKET`, or where a server on this machine has its socket unless told otherwise. */
export function defaultSocket(): string {
  const { MILLRACE_SOCKET: named, XDG_RUNTIME_DIR: runtime } = process.env;
  return (named !== 'default' && named) || join(runtime || tmpdir(), 'millrace', 'millrace.sock');
}

export function openUnixTransport(path: string, _token: string | undefined, events: TransportEvents): Transport {
  // The server answers everything it was asked after we have stopped writing.
  const socket = createConnection({ path, allowHalfOpen: true });
  let failure: string | undefined;
  /** What came of a line whose end has not come; pieces, so that a long line is not copied again and again. */
  let begun: string[] = [];
  let begunChars = 0;

  function received(text: string): void {
    let from = 0;
    for (let end = text.indexOf('\n'); end >= 0; end = text.indexOf('\n', from)) {
      const line = begun.join('') + text.slice(from, end);
      begun = [];
      begunChars = 0;
      from = end + 1;
      if (line.trim() !== '') events.received(line);
    }
    if (from === text.length) return;
    begun.push(text.slice(from));
    begunChars += text.length - from;
    if (begunChars > LINE_CHARS_MAX) abort(`the server sent a line of more than ${LINE_CHARS_MAX} characters`);
  }

  function abort(reason: string): void {
    failure ??= reason;
    socket.destroy();
  }

  /** Messages of one turn of the event loop leave in one write. */
  function cork(): void {
    if (socket.writableCorked > 0) return;
    socket.cork();
    process.nextTick(() => socket.uncork());
  }

  socket.setEncoding('utf8');
  socket.on('connect', () => events.opened());
  socket.on('data', (text: string) => received(text));
  socket.on('end', () => socket.end());
  socket.on('error', (error) => {
    failure ??= reasonOf(error);
  });
  socket.on('close', () => events.ended({ reason: failure ?? 'the server closed the connection', oversize: false }));

  return {
    tokenSent: false,
    get unsentBytes() {
      return socket.writableLength;
    },
    send(text) {
      cork();
      socket.write(text + '\n');
    },
    close: () => void socket.end(),
    abort,
  };
}
