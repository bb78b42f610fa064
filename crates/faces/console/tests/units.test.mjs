// The parts that need no browser, under plain Node.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { asText, merge, rows, visible } from '../web/parts/causes.js';
import { common } from '../web/parts/diff.js';
import { envelope, members, pretty, textOf } from '../web/parts/json.js';
import { nice } from '../web/parts/chart.js';
import { bodyOf, headersOf } from '../web/parts/text.js';
import { count, rate, size, span } from '../web/parts/time.js';
import { axis } from '../web/parts/waterfall.js';

test('the tokenizer cuts values where they end and changes nothing', () => {
  for (const [text, expected] of [
    ['{}', []],
    ['[ ]', []],
    ['{"a":1}', [['"a"', '1']]],
    ['{ "a" : [1,{"b":"}"}] , "c":"\\"]" }', [['"a"', '[1,{"b":"}"}]'], ['"c"', '"\\"]"']]],
    ['[1e400,12345678901234567890,null,"x"]', [[null, '1e400'], [null, '12345678901234567890'], [null, 'null'], [null, '"x"']]],
    ['{"a":{}, "b":[[]],"":true}', [['"a"', '{}'], ['"b"', '[[]]'], ['""', 'true']]],
  ]) {
    assert.deepEqual(members(text).map(({ name, raw }) => [name, raw]), expected, text);
  }
});

test('an envelope keeps its payload as text', () => {
  const raw = '{"id":"a\\u00e9","ts":7,"topic":"t","key":"k","partition":2,"offset":9,"headers":{"h":"v"},"payload":{"n": 1.0 , "big":12345678901234567890}}';
  const cut = envelope(raw);
  assert.equal(cut.payload, '{"n": 1.0 , "big":12345678901234567890}');
  assert.deepEqual([cut.id, cut.ts, cut.key, cut.partition, cut.offset], ['aé', 7, 'k', 2, 9]);
  assert.deepEqual(cut.headers, [['h', 'v']]);
});

test('line breaks change nothing but white space, at any depth', () => {
  for (const text of ['{"a":[1,2,{"b":"x, y"}],"c":{}}', '"x"', '[]', `${'['.repeat(120)}1${']'.repeat(120)}`, '{"\\ud800":1e400}']) {
    const bare = (of) => of.replace(/\s/g, '');
    assert.equal(bare(pretty(text)), bare(text), text);
  }
  assert.equal(textOf('"\\ud800"'), '\ud800');
});

test('numbers are short and lose nothing that counts', () => {
  assert.deepEqual([0, 999, 1234567].map(count), ['0', '999', '1\u2009234\u2009567']);
  assert.deepEqual([null, 0, 0.25, 12.6, 1234.5].map(rate), ['–', '0', '0.3', '13', '1\u2009235']);
  assert.deepEqual([5, 1200, 90_000, 600_000, 90_000_000].map(span), ['5 ms', '1.2 s', '90 s', '10 m', '25 h']);
  assert.deepEqual([10, 2048, 50 << 20].map(size), ['10 B', '2.0 KiB', '50 MiB']);
  assert.deepEqual([0, 3, 17, 260].map(nice), [1, 5, 20, 500]);
});

test('a body is made of text, so that digits stay', () => {
  assert.equal(bodyOf({ payload: '12345678901234567890', key: 'a"b', headers: 'x: y: z' }), '{"key":"a\\"b","headers":{"x":"y: z"},"payload":12345678901234567890}');
  assert.throws(() => bodyOf({ payload: ' ' }), /empty/);
  assert.throws(() => headersOf('nonsense'), /name: value/);
});

test('lines that belong together are found', () => {
  const { left, right } = common(['a', 'b', 'c'], ['a', 'c', 'd']);
  assert.deepEqual([[...left], [...right]], [[0, 2], [0, 1]]);
});

const node = (id, parent, more = {}) => ({ id, ...(parent ? { parent } : {}), what: 'event', type: 't', at: 5, status: 'stored', ...more });

test('a trace becomes a tree: circles end, lost causes stand at the left', () => {
  const all = rows([
    node('child', 'root', { at: 6 }), node('root', null), node('deep', 'child', { status: 'deadLettered', error: 'boom', attempts: 3, at: 9, endedAt: 12 }),
    node('other', 'root'), node('orphan', 'gone'), node('x', 'y'), node('y', 'x'), node('self', 'self'),
  ]);
  assert.deepEqual(all.map(({ node: { id }, level, below, lost }) => [id, level, below, lost]), [
    ['root', 0, 3, false], ['child', 1, 1, false], ['deep', 2, 0, false], ['other', 1, 0, false],
    ['orphan', 0, 0, true], ['self', 0, 0, true], ['x', 0, 1, true], ['y', 1, 0, false],
  ]);
  const seen = (collapsed, failedOnly) => visible(all, new Set(collapsed), failedOnly).map((row) => row.node.id);
  assert.deepEqual(seen(['child'], false), ['root', 'child', 'other', 'orphan', 'self', 'x', 'y']);
  assert.deepEqual(seen([], true), ['root', 'child', 'deep']);
  assert.deepEqual(asText(all).split('\n').slice(0, 4), [
    'event t root  stored  (1970-01-01T00:00:00.005Z)', '├─ event t child  stored  (+1 ms)',
    '│  └─ event t deep  deadLettered after 3 attempts: boom  (+4 ms, 3 ms)', '└─ event t other  stored  (1970-01-01T00:00:00.005Z)',
  ]);
  const merged = merge([node('a', null), node('b', 'a', { status: 'done' })], [node('b', 'a', { status: 'deadLettered' }), node('c', 'b')]);
  assert.deepEqual(merged.map(({ id, status }) => [id, status]), [['a', 'stored'], ['b', 'deadLettered'], ['c', 'stored']]);
  // As deep and as wide as it comes, without the call stack and without squares.
  const chain = rows(Array.from({ length: 20_000 }, (_, at) => node(`n${at}`, at ? `n${at - 1}` : null)));
  assert.deepEqual([chain.length, chain[0].below, chain.at(-1).level], [20_000, 19_999, 19_999]);
  assert.equal(rows(Array.from({ length: 20_000 }, (_, at) => node(`n${at}`, at ? 'n0' : null)))[0].below, 19_999);
});

test('idle time is folded, and everything keeps its order', () => {
  const stretches = [{ at: 0, end: 10 }, { at: 5, end: 20 }, { at: 1000, end: 1010 }, { at: 100_000, end: 100_010 }];
  const folded = axis(stretches, true);
  assert.deepEqual(folded.segments.map(({ from, to, idle }) => [from, to, idle]), [[0, 1010, false], [1010, 100_000, true], [100_000, 100_010, false]]);
  const places = [-5, 0, 5, 20, 1005, 50_000, 100_000, 100_010, 200_000].map(folded.place);
  assert.deepEqual(places, [...places].sort((a, b) => a - b));
  assert.deepEqual([places[0], places[1], places.at(-2), places.at(-1)], [0, 0, 1, 1]);
  assert.ok(axis(stretches, false).place(1010) < 0.02 && folded.place(1010) > 0.9);
  assert.deepEqual([axis([], true).place(7), axis([{ at: 3, end: 3 }], true).place(3)], [0, 0]);
});
