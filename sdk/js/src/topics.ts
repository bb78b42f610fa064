// Topics are made over HTTP, which the socket has no frame for.

import { type BusErrorCode, BusError } from './errors.js';
import type { Durability } from './frames.js';

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
  publishACL?: string[];
  subscribeACL?: string[];
}

interface Problem {
  code?: BusErrorCode;
  detail?: string;
}

/** Creates the topic, or changes it to this. Resolves to what the server stored. */
export async function putTopic(
  url: string,
  token: string | undefined,
  topic: string,
  config: TopicConfig,
): Promise<TopicConfig & { topic: string }> {
  const headers = {
    'content-type': 'application/json',
    ...(token === undefined ? {} : { authorization: `Bearer ${token}` }),
  };
  const response = await fetch(url, { method: 'POST', headers, body: JSON.stringify({ topic, ...config }) });
  const text = await response.text();
  if (response.ok) return JSON.parse(text) as TopicConfig & { topic: string };
  throw problemOf(response.status, text);
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
