// The meaning of a failed publish for an outbox row. Only a fault of the row may use up its attempts: rows must not be
// lost because a server was slow, full or on its way out while they were sent.

import { BusError, type BusErrorCode } from './errors.js';

/** `row`: it will be refused again as it is; counted, and the others go on.
 * `later`: others may change what stands in its way; not counted, and the others go on.
 * `pause`: no row would fare better just now; not counted, wait, then the same row again.
 * `stop`: this client sends nothing any more; not counted, the caller is told. */
export type Verdict = 'row' | 'later' | 'pause' | 'stop';

const VERDICTS: Record<BusErrorCode, Verdict> = {
  // Id, key, headers or priority are not what they must be.
  bad_frame: 'row',
  bad_json: 'row',
  bad_payload: 'row',
  // A bad name; also a topic that nobody made, on a server that makes none by itself.
  bad_topic: 'row',
  too_large: 'row',
  // The payload does not match the topic's schema.
  schema_mismatch: 'row',

  // Token and access list are an administrator's, and a slip in them must not cost events.
  forbidden: 'later',
  // The server has as many topics as it may: those that exist go on.
  limit_reached: 'later',

  // The server says how long to wait.
  rate_limited: 'pause',
  // Nothing is stored until the server is started again.
  storage_failed: 'pause',
  // The client sends publishes again after these three, so they should not be seen here.
  shutting_down: 'pause',
  moved: 'pause',
  connection_lost: 'pause',
  // Others use this client too, and were first.
  queue_full: 'pause',

  // No token, or one that is revoked: the connection is about to go, and the client with it.
  unauthorized: 'stop',
  rejected: 'stop',
  unreachable: 'stop',
  closed: 'stop',
  bad_url: 'stop',

  // No answers to a publish: should one come, client and server do not understand each other, whatever the row.
  unknown_type: 'stop',
  bad_group: 'stop',
  unknown_offset: 'stop',
  filter_conflict: 'stop',
  group_busy: 'stop',
  stale: 'stop',
  already_subscribed: 'stop',
  handler_failed: 'stop',
  timed_out: 'stop',
  bad_message: 'stop',
};

/** A newer server may have a code of its own: nothing is known about it, so nothing is counted. */
export function verdictOn(error: unknown): Verdict {
  if (!(error instanceof BusError)) return 'stop';
  return (VERDICTS as Partial<Record<string, Verdict>>)[error.code] ?? 'later';
}
