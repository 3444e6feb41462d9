import { mkdtemp, readdir, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { resultsFile, writeResults } from '#bench/results';
import { failedRow, isReached, rowOf, type Row } from '#bench/row';
import { table, TABLE_WIDTH } from '#bench/table';

const measured = { row: 'lookups', value: 90, unit: 'answers/s' };
const peer = { what: 'a file server', value: 100 };

describe('a row', () => {
  it('has the ratio to what it is held against, unless it says another', () => {
    expect(rowOf({ ...measured, against: peer }).ratio).toBe(0.9);
    expect(rowOf({ ...measured, against: peer, ratio: 1.2 }).ratio).toBe(1.2);
    expect(rowOf(measured).ratio).toBeNull();
  });

  it.each([
    ['nothing to reach', null, null],
    ['an empty reach', {}, null],
    ['a ratio that is exactly enough', { ratio: { atLeast: 0.9 } }, true],
    ['a ratio that is too small', { ratio: { atLeast: 0.91 } }, false],
    ['a ratio that is too large', { ratio: { atMost: 0.89 } }, false],
    ['a value that is enough', { value: { atLeast: 90, atMost: 90 } }, true],
    ['a value that is too small', { value: { atLeast: 91 } }, false],
    ['both, of which one is missed', { ratio: { atLeast: 0.5 }, value: { atLeast: 91 } }, false],
    ['both, of which the other is missed', { ratio: { atLeast: 1 }, value: { atLeast: 1 } }, false],
  ])('with %s', (_what, reach, ok) => {
    expect(rowOf({ ...measured, against: peer, reach }).ok).toBe(ok);
  });

  it('reaches nothing by what was not measured', () => {
    const reach = { ratio: { atLeast: 0 } };
    expect(isReached({ value: 1, ratio: null, reach })).toBe(false);
    expect(isReached({ value: 1, ratio: Number.NaN, reach })).toBe(false);
    expect(isReached({ value: 1, ratio: Infinity, reach })).toBe(false);
    expect(rowOf({ ...measured, against: { what: 'nobody', value: 0 }, reach }).ok).toBe(false);
    expect(rowOf({ ...measured, value: Number.NaN, reach: { value: { atMost: 1 } } }).ok).toBe(
      false,
    );
  });

  it('says of a measurement that failed why it did', () => {
    expect(failedRow('batch', new Error('the client\n  ended'))).toEqual({
      row: 'batch',
      value: 0,
      unit: 'rows',
      against: null,
      ratio: null,
      reach: { value: { atLeast: 1 } },
      ok: false,
      note: 'failed: the client ended',
    });
  });
});

const rows: Row[] = [
  rowOf({
    ...measured,
    against: peer,
    reach: { ratio: { atLeast: 0.75 }, value: { atLeast: 10_000 } },
    note: 'what bounds it, '.repeat(20),
  }),
  rowOf({
    row: 'a name that nobody would ever give to a row of a table',
    value: 1234567.8,
    unit: 'B',
  }),
  rowOf({ row: 'memory', value: 0.1234, unit: 'MiB', reach: { value: { atMost: 512 } } }),
];

describe('the table', () => {
  const lines = table(rows).split('\n');

  it('fits', () => {
    expect(Math.max(...lines.map((line) => line.length))).toBeLessThanOrEqual(TABLE_WIDTH);
    expect(lines.length).toBeGreaterThan(8);
  });

  it('has every figure of a row, and what it is held against', () => {
    expect(lines[2]).toMatch(/^lookups +90 answers\/s +100 +0\.9 +ratio ≥ 0\.75, ≥ 10,000 +NO$/);
    expect(lines[3]).toBe('    against a file server');
    expect(table(rows)).toMatch(/1,234,568 B +–$/m);
    expect(table(rows)).toMatch(/^memory +0\.123 MiB +≤ 512 +yes$/m);
  });

  it('says what was missed', () => {
    expect(lines.at(-2)).toBe('1 reached, 1 missed, 1 shown only');
    expect(lines.at(-1)).toBe('missed: lookups');
    expect(table(rows.slice(1))).not.toContain('missed:');
  });
});

describe('the results', () => {
  it('are a plain list of rows, written whole', async () => {
    const root = await mkdtemp(join(tmpdir(), 'svc-results-'));
    try {
      const file = resultsFile('quick', root);
      await writeResults(file, rows.slice(0, 1));
      await writeResults(file, rows);
      expect(JSON.parse(await readFile(file, 'utf8'))).toEqual(rows);
      expect(await readdir(join(root, 'bench', 'results'))).toEqual(['quick.json']);
      const members = ['row', 'value', 'unit', 'against', 'ratio', 'reach', 'ok', 'note'];
      expect(Object.keys(rows[0]!)).toEqual(members);
    } finally {
      await rm(root, { recursive: true });
    }
  });
});
