// The form that payloads of a topic must have, checked in this process: before an event is sent, and before a handler
// is called. Any library that speaks Standard Schema (https://standardschema.dev: zod, valibot, arktype, ...) or a
// plain function. The broker's own check is the topic's `schema`, a JSON Schema.

import { SchemaMismatch, type SchemaIssue } from './errors.js';

/** The part of Standard Schema version 1 that is used here. */
export interface StandardSchema<Input = unknown, Output = Input> {
  readonly '~standard': {
    readonly version: 1;
    readonly vendor: string;
    readonly validate: (value: unknown) => StandardResult<Output> | Promise<StandardResult<Output>>;
    readonly types?: { readonly input: Input; readonly output: Output } | undefined;
  };
}

export type StandardResult<Output> =
  | { readonly value: Output; readonly issues?: undefined }
  | { readonly issues: readonly StandardIssue[] };

export interface StandardIssue {
  readonly message: string;
  readonly path?: readonly (PropertyKey | { readonly key: PropertyKey })[] | undefined;
}

/** Throws or returns `false` to refuse the payload. `true`, or nothing, takes it as it is; any other result is what
 * the handler of a received event gets instead. */
export type SchemaFunction = (payload: unknown) => unknown;

export type PayloadSchema = StandardSchema | SchemaFunction;

export class Schemas {
  readonly #schemas = new Map<string, PayloadSchema>();

  constructor(schemas: Record<string, PayloadSchema> = {}) {
    for (const [topic, schema] of Object.entries(schemas)) this.set(topic, schema);
  }

  set(topic: string, schema: PayloadSchema | undefined): void {
    if (schema === undefined) this.#schemas.delete(topic);
    else this.#schemas.set(topic, schema);
  }

  /** Returns the payload as the schema gives it back. Throws `SchemaMismatch`. */
  parse(topic: string, payload: unknown): unknown {
    const schema = this.#schemas.get(topic);
    if (schema === undefined) return payload;
    // A schema of arktype is a function too.
    return '~standard' in schema ? standard(topic, schema, payload) : byFunction(topic, schema, payload);
  }
}

function standard(topic: string, schema: StandardSchema, payload: unknown): unknown {
  let result;
  try {
    result = schema['~standard'].validate(payload);
  } catch (error) {
    throw refused(topic, error);
  }
  // Waiting here would change the order of events, and hold a delivery whose lease runs.
  if ('then' in result) {
    throw new SchemaMismatch(topic, [{ message: 'the schema is asynchronous: only synchronous ones can be used' }]);
  }
  if (result.issues === undefined) return result.value;
  throw new SchemaMismatch(topic, result.issues.map(issueOf));
}

function byFunction(topic: string, schema: SchemaFunction, payload: unknown): unknown {
  let result: unknown;
  try {
    result = schema(payload);
  } catch (error) {
    throw refused(topic, error);
  }
  if (result === payload || result === undefined || result === true) return payload;
  if (result === false) throw new SchemaMismatch(topic, [{ message: 'refused' }]);
  return result;
}

/** What a function throws may hold issues of its own, as the errors of zod and valibot do. */
function refused(topic: string, error: unknown): SchemaMismatch {
  const issues = (error as { issues?: unknown } | undefined)?.issues;
  const known = Array.isArray(issues) && issues.every((issue) => typeof issue?.message === 'string');
  const message = error instanceof Error ? error.message : String(error);
  return new SchemaMismatch(topic, known ? (issues as StandardIssue[]).map(issueOf) : [{ message }], { cause: error });
}

function issueOf({ message, path }: StandardIssue): SchemaIssue {
  if (!path || path.length === 0) return { message };
  return { message, path: path.map((part) => (typeof part === 'object' ? part.key : part)) };
}
