// Messages of the CQRS loop as they travel: one JSON object per line or text frame.

import { BadPayload } from './errors.js';

export type OsKind = 'command' | 'query' | 'event' | 'reply' | 'error';

export interface OsMetadata {
  id: string;
  /** Epoch milliseconds. */
  timestamp: number;
  /** Groups messages of one undertaking. */
  correlation?: string;
  /** The id of the message this one follows from; of an outcome, the request's. */
  causation?: string;
  [other: string]: unknown;
}

export interface OsMessage<Data = unknown> {
  kind: OsKind;
  /** `Domain.Action`, such as `Memory.Get`. */
  type: string;
  data: Data;
  metadata: OsMetadata;
}

/** The `data` of an error. */
export interface OsFault {
  /** In the manner of HTTP: 400 to 599. */
  code: number;
  message: string;
  cause?: OsFault;
}

/** The loop or a capability answered a request with an error, and says why. */
export class OsError extends Error {
  readonly code: number;
  /** The type of the message that was refused, if it could be read. */
  readonly type: string;

  constructor(fault: OsFault, type: string) {
    super(fault.message, fault.cause === undefined ? undefined : { cause: new OsError(fault.cause, type) });
    this.name = 'OsError';
    this.code = fault.code;
    this.type = type;
  }

  /** A capability may put anything into an error's data. */
  static of(message: OsMessage): OsError {
    return new OsError(asFault(message.data) ?? { code: 500, message: JSON.stringify(message.data) }, message.type);
  }
}

function asFault(data: unknown): OsFault | undefined {
  if (typeof data !== 'object' || data === null) return undefined;
  const { code, message, cause } = data as Record<string, unknown>;
  if (typeof code !== 'number' || typeof message !== 'string') return undefined;
  const deeper = asFault(cause);
  return { code, message, ...(deeper === undefined ? {} : { cause: deeper }) };
}

/** The loop wants `data` in every message: nothing to say is `{}`. */
export function encode(message: Omit<OsMessage, 'data'>, data: unknown): string {
  const { kind, type, metadata } = message;
  let written: string | undefined;
  try {
    written = JSON.stringify(data === undefined ? {} : data);
  } catch (error) {
    throw new BadPayload(error instanceof Error ? error.message : String(error), { cause: error });
  }
  // `JSON.stringify` returns undefined for functions and symbols, whatever its type promises.
  if (written === undefined) throw new BadPayload(`it is a ${typeof data}`);
  return `{"kind":"${kind}","type":${JSON.stringify(type)},"data":${written},"metadata":${JSON.stringify(metadata)}}`;
}

/** `undefined` for what is no message. */
export function decode(text: string): OsMessage | undefined {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return undefined;
  }
  if (typeof value !== 'object' || value === null) return undefined;
  const { kind, type, metadata } = value as Partial<OsMessage>;
  const named = typeof kind === 'string' && typeof type === 'string';
  return named && typeof metadata === 'object' && metadata !== null ? (value as OsMessage) : undefined;
}
