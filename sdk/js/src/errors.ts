// Errors, by what the caller can do about them. `code` tells them apart without `instanceof`, which fails
// when two copies of a package are loaded.

import type { ErrorCode, ErrorFrame } from './frames.js';

export type BusErrorCode =
  | ErrorCode
  | 'bad_url'
  | 'bad_payload'
  | 'rejected'
  | 'unreachable'
  | 'connection_lost'
  | 'queue_full'
  | 'stale'
  | 'already_subscribed'
  | 'handler_failed'
  | 'timed_out'
  | 'bad_message'
  | 'closed';

export class BusError extends Error {
  readonly code: BusErrorCode;

  constructor(code: BusErrorCode, message: string, options?: ErrorOptions) {
    super(message, options);
    this.code = code;
    this.name = new.target.name;
  }
}

/** The server refused the request and says why; `code` is the server's. */
export class Refused extends BusError {
  readonly frame: ErrorFrame;

  constructor(frame: ErrorFrame) {
    super(frame.code, frame.message);
    this.frame = frame;
  }

  /** How long the server asks to wait before the same again, if it says so. The message of `rate_limited` does:
   * "too many requests: try again in 200 ms". */
  get retryAfterMs(): number | undefined {
    const found = this.code === 'rate_limited' ? /try again in (\d+) ms/.exec(this.message) : null;
    return found ? Number(found[1]) : undefined;
  }
}

/** Correct the URL. */
export class BadUrl extends BusError {
  constructor(url: string, reason: string) {
    super('bad_url', `${JSON.stringify(url)} is no usable URL: ${reason}`);
  }
}

/** The payload has no JSON form. */
export class BadPayload extends BusError {
  constructor(reason: string, options?: ErrorOptions) {
    super('bad_payload', `the payload has no JSON form: ${reason}`, options);
  }
}

/** Make the event or message smaller, or raise the limit on both sides. */
export class TooLarge extends BusError {
  constructor(bytes: number, allowed: string, what = 'frame of the publish') {
    super('too_large', `the ${what} has ${bytes} bytes: ${allowed} are allowed`);
  }
}

/** The server answered but does not let this client in: correct token, origin or path. */
export class Rejected extends BusError {
  readonly status: number;

  constructor(url: string, status: number, reason?: string) {
    super('rejected', `${url} refused the connection with status ${status}${reason ? `: ${reason}` : ''}`);
    this.status = status;
  }
}

/** The client gave up connecting, as its options say, or one request over HTTP did not reach the server. */
export class Unreachable extends BusError {
  constructor(url: string, reason: string, options?: ErrorOptions) {
    super('unreachable', `cannot reach ${url}: ${reason}`, options);
  }
}

/** There is no connection just now, and the client goes on trying. Told to `onError` when the connection is lost, and
 * when an attempt to connect fails for another reason than the last one. */
export class Disconnected extends BusError {
  readonly reason: string;

  constructor(url: string, reason: string) {
    super('connection_lost', `no connection to ${url}: ${reason}; trying again`);
    this.reason = reason;
  }
}

/** A publish failed and nobody awaited it. `code` and `cause` are those of the failure. */
export class PublishFailed extends BusError {
  readonly topic: string;
  /** The ids of the events that were not published: one, or those of a batch. */
  readonly ids: string[];

  constructor(topic: string, ids: string[], cause: BusError) {
    const what = ids.length === 1 ? `event ${ids[0]}` : `${ids.length} events`;
    super(cause.code, `${what} for ${topic} not published: ${cause.message}`, { cause });
    this.topic = topic;
    this.ids = ids;
  }
}

/** One thing that a schema found wrong. */
export interface SchemaIssue {
  message: string;
  /** Where in the payload, outermost first. */
  path?: PropertyKey[];
}

/** The payload does not fit the schema that this client has for the topic. */
export class SchemaMismatch extends BusError {
  readonly topic: string;
  readonly issues: SchemaIssue[];

  constructor(topic: string, issues: SchemaIssue[], options?: ErrorOptions) {
    const texts = issues.map(({ message, path = [] }) => {
      return path.length === 0 ? message : `${path.map(String).join('.')}: ${message}`;
    });
    super('schema_mismatch', `the payload does not match the schema of ${topic}: ${texts.join('; ')}`, options);
    this.topic = topic;
    this.issues = issues;
  }
}

/** The connection was lost before the answer came: it may or may not have been done. Publishes never end like this. */
export class ConnectionLost extends BusError {
  constructor(reason: string) {
    super('connection_lost', `the connection was lost before the answer came (${reason})`);
  }
}

/** Too many publishes wait for their confirmation, or requests for their outcome: wait for some of them; for publishes
 * use `waitForRoom()`. */
export class QueueFull extends BusError {
  constructor(what: string, awaited = 'wait for their confirmation') {
    super('queue_full', `the send queue is full: ${what} ${awaited}`);
  }
}

/** The delivery came on a connection that is gone: the event is delivered again. */
export class Stale extends BusError {
  constructor() {
    super('stale', 'the connection of this delivery is gone: the event is delivered again');
  }
}

/** A client is one member of a group: use a second client for a second member. */
export class AlreadySubscribed extends BusError {
  constructor(topic: string, group: string) {
    super('already_subscribed', `this client is already subscribed to topic ${topic} in group ${group}`);
  }
}

/** A function given to this package threw; `cause` is what it threw. */
export class HandlerFailed extends BusError {
  constructor(what: string, cause: unknown) {
    super('handler_failed', `${what} threw: ${cause instanceof Error ? cause.message : String(cause)}`, { cause });
  }
}

/** No outcome came in time. The request may still be carried out; a late outcome is dropped. */
export class TimedOut extends BusError {
  constructor(timeoutMs: number) {
    super('timed_out', `no outcome within ${timeoutMs} ms`);
  }
}

/** The server sent what is no message: client and server do not speak the same protocol. */
export class BadMessage extends BusError {
  constructor(text: string) {
    super('bad_message', `the server sent what is no message: ${text.slice(0, 80)}`);
  }
}

export class Closed extends BusError {
  constructor() {
    super('closed', 'the client is closed');
  }
}
