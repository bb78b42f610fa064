// Topics are made over HTTP, which the socket has no frame for.

import { type BusErrorCode, BusError, Unreachable } from './errors.js';
import type { AckMode, Durability } from './frames.js';
import { reasonOf, type TlsOptions } from './transport.js';

/** Absent settings are the server's defaults. */
export interface TopicConfig {
  partitions?: number;
  retentionMs?: number;
  retentionBytes?: number;
  maxAttempts?: number;
  ackTimeoutMs?: number;
  dedupeWindowMs?: number;
  durability?: Durability;
  compact?: boolean;
  /** How acks of clients that do not choose a mode are read. */
  ackMode?: AckMode;
  /** In every group, events of one key go to one member, one at a time. */
  sticky?: boolean;
  publishACL?: string[];
  subscribeACL?: string[];
  /** A JSON Schema (draft 2020-12) that the payload of every event must match. */
  schema?: Record<string, unknown> | boolean;
  /** Group name, or * for all groups without a list of their own, to who may join, seek or delete it. */
  groupACL?: Record<string, string[]>;
}

interface Problem {
  code?: BusErrorCode;
  detail?: string;
}

/** Creates the topic, or gives one that exists these settings; it keeps the others. Resolves to what the server stored. */
export async function putTopic(
  url: string,
  token: string | undefined,
  tls: TlsOptions | undefined,
  topic: string,
  config: TopicConfig,
): Promise<TopicConfig & { topic: string }> {
  const headers = {
    'content-type': 'application/json',
    ...(token === undefined ? {} : { authorization: `Bearer ${token}` }),
  };
  const { status, text } = await post(url, headers, JSON.stringify({ topic, ...config }), tls);
  if (status >= 200 && status < 300) return JSON.parse(text) as TopicConfig & { topic: string };
  throw problemOf(status, text);
}

/** `fetch` cannot be told of certificates, so with those the request goes through Node's own client. */
async function post(
  url: string,
  headers: Record<string, string>,
  body: string,
  tls: TlsOptions | undefined,
): Promise<{ status: number; text: string }> {
  try {
    if (tls) return await (await import('./node-post.js')).nodePost(url, headers, body, tls);
    const response = await fetch(url, { method: 'POST', headers, body });
    return { status: response.status, text: await response.text() };
  } catch (error) {
    throw new Unreachable(url, reasonOf(error), { cause: error });
  }
}

/** Something between here and the server may answer in its own words. */
function problemOf(status: number, text: string): BusError {
  let problem: Problem = {};
  try {
    problem = JSON.parse(text) as Problem;
  } catch {
    problem.detail = text;
  }
  return new BusError(problem.code ?? 'rejected', problem.detail || `the server answered with status ${status}`);
}
