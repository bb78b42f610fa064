/** The path of the server: these tests run against the real one. */
export function serverBinary() {
  const path = process.env['MILLRACE_BIN'];
  if (!path) throw new Error('set MILLRACE_BIN to the path of the server');
  return path;
}
