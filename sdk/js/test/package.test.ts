// The package as its users get it: installed into a fresh folder, imported and required, its README run.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { existsSync, readFileSync } from 'node:fs';
import { after, before, test } from 'node:test';

import { BusClient } from '../src/index.js';
import { Broker } from './broker.js';
import { QUICK } from './fixture.js';
import { FreshFolder, type Program } from './fresh-folder.js';

const README = readFileSync(new URL('../../README.md', import.meta.url), 'utf8');

let folder: FreshFolder;
let broker: Broker;

before(async () => {
  [folder, broker] = await Promise.all([FreshFolder.make('sibilant@0.5.6', 'zod@4'), Broker.start()]);
});

after(async () => {
  await broker?.remove();
  await folder?.remove();
});

interface Example {
  code: string;
  /** What the README says that it prints. */
  output: string;
}

/** The block of JavaScript before the console in which `name` is run. */
function example(name: string): Example {
  const blocks = [...README.matchAll(/^```(\w+)\n([^]*?)^```$/gm)];
  const shown = `$ node ${name}\n`;
  const at = blocks.findIndex(([, kind, text]) => kind === 'console' && text?.startsWith(shown));
  const [, kind, code = ''] = blocks[at - 1] ?? [];
  assert.equal(kind, 'js', `README.md shows no run of ${name} behind its code`);
  return { code, output: (blocks[at]?.[2] ?? '').slice(shown.length).trimEnd() };
}

async function start(name: string): Promise<Program & { output: string }> {
  const { code, output } = example(name);
  await folder.write(name, code);
  return { ...folder.start(name, { BUS_URL: broker.ws, MILLRACE_SOCKET: broker.socket }), output };
}

/** Ids and times differ from run to run. */
function plain(text: string): string {
  return text.replace(/[0-9a-f]{8}-[0-9a-f-]{27}/g, 'ID').replace(/\b1[78]\d{11}\b/g, 'TIME');
}

async function ended({ child }: Program): Promise<void> {
  if (child.exitCode === null) await once(child, 'exit');
  assert.equal(child.exitCode, 0);
}

test('every example of the README with an output is run by a test of this file', () => {
  const shown = [...README.matchAll(/^\$ node (\S+)$/gm)].map(([, name]) => name);
  assert.deepEqual(shown, ['publish.mjs', 'billing.mjs', 'resize.mjs', 'checked.mjs', 'ducks.mjs']);
});

test('publish.mjs and billing.mjs print what the README shows, over a kill of the broker', async () => {
  const publishing = await start('publish.mjs');
  await ended(publishing);
  assert.equal(plain(publishing.lines.all.join('\n')), plain(publishing.output));

  const billing = await start('billing.mjs');
  const [positions, ...messages] = billing.output.split('\n');
  await billing.lines.until((lines) => lines.includes(messages.at(-2) ?? ''));
  await broker.kill();
  await broker.restart();
  const bus = new BusClient(broker.ws, QUICK);
  await bus.publish('orders', { id: 5 });
  await bus.close();
  const lines = await billing.lines.until((all) => all.includes(messages.at(-1) ?? ''));
  assert.deepEqual(
    [...new Set(lines.filter((line) => line !== positions))],
    messages,
    'each once, but for one whose ack the kill may have cost',
  );
  billing.child.kill('SIGKILL');
});

for (const name of ['resize.mjs', 'checked.mjs', 'ducks.mjs']) {
  test(`${name} prints what the README shows`, async () => {
    const program = await start(name);
    const expected = program.output.split('\n');
    const lines = await program.lines.count(expected.length);
    assert.deepEqual([...lines].sort(), [...expected].sort());
    // The task queue runs until it is told to stop.
    program.child.kill('SIGINT');
    if (name === 'resize.mjs') await ended(program);
    else if (program.child.exitCode === null && program.child.signalCode === null) await once(program.child, 'exit');
  });
}

test('the Sibilant program of the README compiles where the package is installed, in any folder', async () => {
  const [, program] = /```lisp\n([^]*?)```/.exec(README) ?? [];
  assert.ok(program);
  for (const file of ['program.sibilant', 'deeper/program.sibilant']) {
    await folder.write(file, program);
    const compiled = await folder.npm('exec', '--', 'sibilant', file);
    assert.match(compiled, /bus\.subscribe/);
    assert.match(compiled, /registerTopic/);
  }
});

const CONSUMER = `
import { BusClient, TaskQueue, assignPartition, type Ack, type EventRow, type IMessageFrame } from 'millrace';

const bus = new BusClient();
const group = 'typed';
bus.subscribe({ topic: 'typed', group, from: { kind: 'earliest' } }, (m: IMessageFrame) => {
  const ack: Ack = { type: 'ACK', topic: m.topic, partition: m.partition, group: m.group, offset: m.offset };
  bus.ack(ack);
  console.log(JSON.stringify(m.envelope.payload), assignPartition('duck-1', 4), typeof TaskQueue);
  void bus.close();
});
const row: Partial<EventRow> = { payload: 'typed' };
void bus.publish('typed', row.payload);
`;

/** As strict as can be, without the types of Node and with those of the package checked. */
const STRICT = ['--strict', '--target', 'ES2022', '--lib', 'ES2022,DOM'];

for (const [kind, name, options] of [
  ['CommonJS', 'common.cts', ['--module', 'node16']],
  ['ES module', 'modern.mts', ['--module', 'node16']],
  ['older', 'older.ts', ['--module', 'commonjs', '--moduleResolution', 'node10']],
] as const) {
  test(`TypeScript compiles and runs: ${kind}`, async () => {
    await folder.write(name, CONSUMER.replaceAll('typed', kind.replace(' ', '-')));
    await folder.tool('typescript/bin/tsc', ...STRICT, ...options, '--outDir', 'out', name);
    const program = folder.start(`out/${name.replace('ts', 'js')}`, { BUS_URL: broker.ws });
    assert.deepEqual(await program.lines.count(1), [`"${kind.replace(' ', '-')}" 3 function`]);
    await ended(program);
  });
}

test("the source document's task queue compiles unchanged against this package", async () => {
  const queue = readFileSync(new URL('../../test/source-document/queue.ts', import.meta.url), 'utf8');
  await folder.write('document/task/queue.ts', queue);
  await folder.write('document/bus/client.ts', "export { BusClient } from 'millrace';\n");
  await folder.write('document/bus/types.ts', "export * from 'millrace';\n");
  const options = ['--noEmit', '--module', 'commonjs', '--moduleResolution', 'node10'];
  await folder.tool('typescript/bin/tsc', ...STRICT, ...options, 'document/task/queue.ts');
});

test('the tarball holds both builds, their sources, the examples and the licences, and no tests', async () => {
  const files = await folder.packed();
  for (const file of [
    'LICENSE-APACHE',
    'LICENSE-MIT',
    'README.md',
    'dist/cjs/index.d.ts',
    'dist/cjs/index.js',
    'dist/cjs/package.json',
    'dist/src/index.d.ts',
    'dist/src/index.js',
    'examples/browser/index.html',
    'examples/browser/page.js',
    'examples/heartbeat.js',
    'examples/monitor.js',
    'examples/outbox.js',
    'package.json',
    'sibilant/bus.sibilant',
    'src/index.ts',
  ]) {
    assert.ok(files.includes(file), `${file} is missing`);
  }
  const expected = /^(dist\/(cjs|src)|examples|sibilant|src)\/|^(LICENSE-|README|package\.json)/;
  const strange = files.filter((file) => !expected.test(file));
  assert.deepEqual(strange, []);
});

test('the licences are those of the repository', () => {
  for (const name of ['LICENSE-APACHE', 'LICENSE-MIT']) {
    const [here, there] = [new URL(`../../${name}`, import.meta.url), new URL(`../../../../${name}`, import.meta.url)];
    if (existsSync(there)) assert.equal(readFileSync(here, 'utf8'), readFileSync(there, 'utf8'));
  }
});
