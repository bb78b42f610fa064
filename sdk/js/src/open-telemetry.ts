// Traces: the caller's context goes into what is published, and handlers run in the context of what they are given.
//
// The program brings the API of OpenTelemetry, so nothing is installed or loaded for those who do not trace. Spans are
// the program's own matter.

import type { Headers } from './frames.js';
import type { OnMessage } from './membership.js';

const TRACEPARENT = 'traceparent';

/** What is used of the package `@opentelemetry/api`: give it as it is. Contexts are its own and only passed on. */
export interface OpenTelemetryApi {
  context: {
    active(): unknown;
    with<R>(context: unknown, call: () => R): R;
  };
  propagation: {
    inject(context: unknown, carrier: Record<string, string>): void;
    extract(context: unknown, carrier: Record<string, string>): unknown;
  };
}

/** Returns the headers with the caller's context; one that they have already is not touched. */
export function injected(api: OpenTelemetryApi | undefined, headers: Headers | undefined): Headers | undefined {
  if (!api || headers?.[TRACEPARENT] !== undefined) return headers;
  const carrier: Record<string, string> = {};
  api.propagation.inject(api.context.active(), carrier);
  return Object.keys(carrier).length === 0 ? headers : { ...carrier, ...headers };
}

/** Runs a handler in the context of its message. */
export function extracting(api: OpenTelemetryApi | undefined, onMessage: OnMessage): OnMessage {
  if (!api) return onMessage;
  return (message) => {
    const context = api.propagation.extract(api.context.active(), message.envelope.headers ?? {});
    return api.context.with(context, () => onMessage(message));
  };
}
