// Bodies of requests, made as text: what a user wrote is sent as it was written.

/** The body of the request: the payload is put in as text. @param {{ payload: string, key?: string, id?: string, delay?: string, headers?: string }} of */
export function bodyOf(of) {
  if (of.payload.trim() === '') throw new Error('The payload is empty: write any JSON, null included.');
  const parts = [];
  if (of.key) parts.push(`"key":${JSON.stringify(of.key)}`);
  if (of.id) parts.push(`"id":${JSON.stringify(of.id)}`);
  if (of.delay) parts.push(`"delay_ms":${Number(of.delay)}`);
  const headers = headersOf(of.headers ?? '');
  if (Object.keys(headers).length > 0) parts.push(`"headers":${JSON.stringify(headers)}`);
  parts.push(`"payload":${of.payload}`);
  return `{${parts.join(',')}}`;
}

/** @param {string} text @returns {Record<string, string>} */
export function headersOf(text) {
  /** @type {Record<string, string>} */
  const found = {};
  for (const line of text.split('\n').filter((one) => one.trim() !== '')) {
    const at = line.indexOf(':');
    if (at < 1) throw new Error(`The header ${JSON.stringify(line)} is not written as name: value.`);
    found[line.slice(0, at).trim()] = line.slice(at + 1).trim();
  }
  return found;
}
