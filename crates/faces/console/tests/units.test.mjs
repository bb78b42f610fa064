// The parts that need no browser, under plain Node.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { common } from '../web/parts/diff.js';
import { envelope, members, pretty, textOf } from '../web/parts/json.js';
import { nice } from '../web/parts/chart.js';
import { bodyOf, headersOf } from '../web/parts/text.js';
import { count, rate, size, span } from '../web/parts/time.js';

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
