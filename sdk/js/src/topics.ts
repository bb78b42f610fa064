// Topics are made over HTTP, which the socket has no frame for.

import type { Endpoint } from './endpoint.js';
import { type BusErrorCode, BusError, Unreachable } from './errors.js';
import type { AckMode, Durability } from './frames.js';
import { ServerRound } from './round.js';
import type { ServerList } from './servers.js';
import { reasonOf, type TlsOptions } from './transport.js';

/** How long to look for a server that leads. */
const SEARCH_MS_MAX = 30_000;
/** The pause after all servers have answered that they do not lead; they ask for as much. */
const SEARCH_PAUSE_MS = 1_000;

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
  leader?: string | null;
}

export interface TopicsOptions {
  token?: string;
  tls?: TlsOptions;
  giveUpAfterMs?: number;
}

type Stored = TopicConfig & { topic: string };

/** Creates the topic, or gives one that exists these settings; it keeps the others. Resolves to what the server stored.
 * Asks one server after the other, beginning with `first`: to ask two does no harm. While servers answer that they do
 * not lead, the lead is about to be taken, so the search goes on for a while. */
export async function putTopic(
  servers: ServerList,
  options: TopicsOptions,
  topic: string,
  config: TopicConfig,
  first?: Endpoint,
): Promise<Stored> {
  const body = JSON.stringify({ topic, ...config });
  const until = performance.now() + Math.min(SEARCH_MS_MAX, options.giveUpAfterMs ?? Infinity);
  const round = new ServerRound(servers);
  if (first) round.startWith(first);
  for (;;) {
    const answer = await putInRound(servers, round, options, body);
    if (!(answer instanceof BusError)) return answer;
    if (answer.code !== 'moved' || performance.now() >= until) throw answer;
    await new Promise((resolve) => setTimeout(resolve, SEARCH_PAUSE_MS));
    round.restart();
  }
}

/** Asks the servers of one round. Resolves to an error if none of them leads: `moved` if one was there to say so. */
async function putInRound(
  servers: ServerList,
  round: ServerRound,
  { token, tls }: TopicsOptions,
  body: string,
): Promise<Stored | BusError> {
  const headers = {
    'content-type': 'application/json',
    ...(token === undefined ? {} : { authorization: `Bearer ${token}` }),
  };
  let failure: BusError = new BusError('unreachable', 'there is no server to ask');
  for (let server = round.next(); server; server = round.next()) {
    const answer = await post(server.http('/topics'), headers, body, tls);
    if (answer instanceof BusError) {
      if (failure.code !== 'moved') failure = answer;
      continue;
    }
    if (answer.status >= 200 && answer.status < 300) return JSON.parse(answer.text) as Stored;
    const problem = problemOf(answer.text);
    failure = errorOf(answer.status, problem);
    if (problem.code !== 'moved') throw failure;
    const leader = typeof problem.leader === 'string' ? servers.leader(problem.leader, server) : undefined;
    if (typeof leader === 'object') round.startWith(leader);
  }
  return failure;
}

/** `fetch` cannot be told of certificates, so with those the request goes through Node's own client. */
async function post(
  url: string,
  headers: Record<string, string>,
  body: string,
  tls: TlsOptions | undefined,
): Promise<{ status: number; text: string } | BusError> {
  try {
    if (tls) return await (await import('./node-post.js')).nodePost(url, headers, body, tls);
    const response = await fetch(url, { method: 'POST', headers, body });
    return { status: response.status, text: await response.text() };
  } catch (error) {
    return new Unreachable(url, reasonOf(error), { cause: error });
  }
}

/** Something between here and the server may answer in its own words. */
function problemOf(text: string): Problem {
  try {
    return JSON.parse(text) as Problem;
  } catch {
    return { detail: text };
  }
}

function errorOf(status: number, { code, detail }: Problem): BusError {
  return new BusError(code ?? 'rejected', detail || `the server answered with status ${status}`);
}
