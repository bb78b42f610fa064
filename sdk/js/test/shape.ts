// A small schema. `Shape<T>` must name every field of `T` and no other, and say of each whether it may be missing, or
// the tests do not compile; a frame with a field that no type knows, or without one that a type promises, fails.

type Check = (value: unknown, at: string) => void;

interface FieldCheck<Optional extends boolean> {
  optional: Optional;
  check: Check;
}

export type Shape<T> = { [K in keyof T]-?: FieldCheck<object extends Pick<T, K> ? true : false> };

export function required(check: Check): FieldCheck<false> {
  return { optional: false, check };
}

export function optional(check: Check): FieldCheck<true> {
  return { optional: true, check };
}

export const text: Check = (value, at) => expect(typeof value === 'string', value, at, 'a string');
export const textOrNull: Check = (value, at) =>
  expect(value === null || typeof value === 'string', value, at, 'a string or null');
export const integer: Check = (value, at) => expect(Number.isSafeInteger(value), value, at, 'an integer');
export const anything: Check = () => {};

export const oneOf =
  (...values: readonly unknown[]): Check =>
  (value, at) =>
    expect(values.includes(value), value, at, `one of ${values.join(', ')}`);

export const listOf =
  (check: Check): Check =>
  (value, at) => {
    expect(Array.isArray(value), value, at, 'a list');
    (value as unknown[]).forEach((item, n) => check(item, `${at}[${n}]`));
  };

export const tableOf =
  (check: Check): Check =>
  (value, at) => {
    expect(isObject(value), value, at, 'an object');
    for (const [name, item] of Object.entries(value as object)) check(item, `${at}.${name}`);
  };

export const like =
  <T>(shape: Shape<T>): Check =>
  (value, at) => {
    expect(isObject(value), value, at, 'an object');
    const fields = value as Record<string, unknown>;
    for (const name of Object.keys(fields))
      expect(name in shape, fields[name], `${at}.${name}`, 'absent: no type has it');
    for (const [name, field] of Object.entries(shape) as [string, FieldCheck<boolean>][]) {
      if (name in fields) field.check(fields[name], `${at}.${name}`);
      else expect(field.optional, undefined, `${at}.${name}`, 'there');
    }
  };

function isObject(value: unknown): boolean {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function expect(holds: boolean, value: unknown, at: string, expected: string): void {
  if (!holds) throw new Error(`${at} is ${JSON.stringify(value)}: it must be ${expected}`);
}
