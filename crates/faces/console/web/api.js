// The public HTTP interface, and nothing else: what this file does, curl can.

import { state, tell } from './state.js';

/** @typedef {import('./schema.d.ts').components['schemas']} Schemas */

/** A refusal of the server (RFC 9457), or that it could not be reached (status 0). */
export class Problem extends Error {
  /** @param {number} status @param {string} code @param {string} detail */
  constructor(status, code, detail) {
    super(detail);
    this.status = status;
    this.code = code;
  }
}

/** @param {unknown} error */
export const errorText = (error) => (error instanceof Error ? error.message : String(error));

/** The page is at `…/console/`, the interface above it: a path in front of a proxy stays. */
export const ROOT = new URL('../', document.baseURI);

/** The same for the clients of the bus, as in printed commands. */
export const BUS = ROOT.href.replace(/^http/, 'ws');

let token = stored();

function stored() {
  try {
    return sessionStorage.getItem('millrace.token') ?? localStorage.getItem('millrace.token') ?? '';
  } catch {
    return '';
  }
}

/** @param {string} value @param {boolean} remember on this device, not only in this tab */
export function setToken(value, remember) {
  token = value;
  try {
    sessionStorage.removeItem('millrace.token');
    localStorage.removeItem('millrace.token');
    if (value) (remember ? localStorage : sessionStorage).setItem('millrace.token', value);
  } catch {
    // Without storage the token is kept in memory.
  }
}

/** Asks the user for a token; set by `main.js`. @type {{ ask: (why: string) => Promise<void> }} */
export const door = { ask: async () => {} };

/** @param {string} path @param {Record<string, unknown>} [query] @param {boolean} [bare] without the namespace */
export function address(path, query = {}, bare = false) {
  const url = new URL(path.replace(/^\//, ''), ROOT);
  if (!bare && state.namespace !== 'default') url.searchParams.set('namespace', state.namespace);
  for (const [name, value] of Object.entries(query)) {
    if (value !== undefined && value !== null && value !== '') url.searchParams.set(name, String(value));
  }
  return url;
}

/**
 * @typedef {{ method?: string, query?: Record<string, unknown>, body?: string, accept?: string, signal?: AbortSignal,
 *   bare?: boolean }} Options
 */

/** @param {string} path @param {Options} [options] @returns {Promise<Response>} */
export async function call(path, options = {}) {
  for (;;) {
    /** @type {Record<string, string>} */
    const headers = { accept: options.accept ?? 'application/json' };
    if (token) headers['authorization'] = `Bearer ${token}`;
    if (options.body !== undefined) headers['content-type'] = 'application/json';
    const used = token;
    let response;
    try {
      response = await fetch(address(path, options.query, options.bare), {
        method: options.method ?? 'GET',
        headers,
        body: options.body ?? null,
        signal: options.signal ?? null,
        cache: 'no-store',
      });
    } catch (error) {
      if (options.signal?.aborted) throw error;
      setLink('away');
      throw new Problem(0, 'away', 'The server cannot be reached. This page goes on when it is back.');
    }
    setLink('connected');
    if (response.ok) return response;
    const problem = await problemOf(response);
    if (problem.status !== 401) throw problem;
    // Another request may have asked for the token meanwhile.
    if (used === token) await door.ask(problem.message);
    if (used === token) throw problem;
  }
}

/** @param {Response} response */
async function problemOf(response) {
  try {
    const doc = await response.json();
    return new Problem(response.status, String(doc.code), String(doc.detail));
  } catch {
    return new Problem(response.status, 'unknown', `The server answered ${response.status}.`);
  }
}

/** @param {string} link */
function setLink(link) {
  if (state.link === link) return;
  state.link = link;
  tell('link');
}

/** @template T @param {string} path @param {Options} [options] @returns {Promise<T>} */
export async function get(path, options) {
  return /** @type {T} */ (await (await call(path, options)).json());
}

/** @template T @param {string} method @param {string} path @param {unknown} [body] @param {Options} [options] @returns {Promise<T | null>} */
export async function send(method, path, body, options = {}) {
  const text = typeof body === 'string' ? body : body === undefined ? undefined : JSON.stringify(body);
  const response = await call(path, { ...options, method, ...(text === undefined ? {} : { body: text }) });
  return response.status === 204 ? null : /** @type {T} */ (await response.json());
}

export const NDJSON = 'application/x-ndjson';

/** A page of lines, and its headers. @param {string} path @param {Options} [options] */
export async function lines(path, options) {
  const response = await call(path, { ...options, accept: NDJSON });
  const text = await response.text();
  return { lines: text.split('\n').filter((line) => line !== ''), headers: response.headers };
}

/**
 * Lines without end, as they come.
 * @param {string} path @param {Options} options @param {() => void} begun @param {(lines: string[]) => void} each
 */
export async function stream(path, options, begun, each) {
  const response = await call(path, { ...options, accept: NDJSON });
  begun();
  if (!response.body) return;
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const parts = (rest + value).split('\n');
    rest = parts.pop() ?? '';
    if (parts.length > 0) each(parts);
  }
}

/** A name as a part of a path. @param {string | number} name */
export const part = (name) => encodeURIComponent(String(name));
