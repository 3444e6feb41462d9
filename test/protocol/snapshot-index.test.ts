import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { concat, fromHex, fromUtf8, toHex } from '#protocol/bytes';
import { ProtocolError } from '#protocol/errors';
import { nobleSha256 as sha256 } from '#protocol/hash';
import {
  findPlace,
  loadedPart,
  readRecord,
  runLookup,
  type LoadedPart,
  type SegmentRead,
} from '#protocol/snapshot/find';
import {
  decodeIndexPart,
  encodeIndexPart,
  FILE_BYTES,
  leafRange,
  openIndexPart,
  packRows,
  RECORD_DIGEST_BYTES,
  ROW_BYTES,
  rowId,
  type IndexRow,
  type IndexRows,
  type PartPin,
} from '#protocol/snapshot/index-part';
import { mergeRows } from '#protocol/snapshot/merge';
import { encodeRecord, recordBody } from '#protocol/snapshot/record';
import { proofIdAt } from '../fixtures/snapshot.js';

const ids = (count: number, seed = 'x'): string[] =>
  Array.from({ length: count }, (_, i) => proofIdAt(1_700_000_000_000 + i, `${seed}${i}`));

/** A file of records with one small record for each id, and the index rows that refer to them. */
function bodies(proofIds: readonly string[], text: string, firstLeaf = 0) {
  const records = proofIds.map((proof_id) =>
    encodeRecord({ id: proof_id, parts: { proof: `${text} ${proof_id}` }, tail: 'tail' }),
  );
  const file = concat(...records);
  const name = toHex(sha256(file));
  let offset = 0;
  const rows = records.map((record, i): IndexRow => {
    const row = {
      id: proofIds[i]!,
      file: name,
      fileBytes: file.length,
      offset,
      length: record.length,
      leafIndex: firstLeaf + i,
      proofNumber: firstLeaf + i,
      digest: sha256(record).slice(0, RECORD_DIGEST_BYTES),
    };
    offset += record.length;
    return row;
  });
  return { name, file, rows };
}

function pinOf(rows: IndexRows, bytes: Uint8Array, residentBytes: number): PartPin {
  return {
    bytes: bytes.length,
    resident_bytes: residentBytes,
    resident_sha256: toHex(sha256(bytes.subarray(0, residentBytes))),
    entries: rows.high.length,
    files: rows.files.length / FILE_BYTES,
    least: rowId(rows, 0),
    greatest: rowId(rows, rows.high.length - 1),
  };
}

/** Files in memory and an index segment loaded from them. */
class Files {
  readonly byName = new Map<string, Uint8Array>();
  reads = 0;

  addPart(rows: IndexRows): LoadedPart {
    const { bytes, residentBytes } = encodeIndexPart(sha256, rows);
    const name = toHex(sha256(bytes));
    this.byName.set(name, bytes);
    const pin = pinOf(rows, bytes, residentBytes);
    return loadedPart(name, openIndexPart(sha256, bytes.subarray(0, residentBytes), pin));
  }

  read = ({ segment, bytes, offset, length }: SegmentRead): Uint8Array => {
    this.reads++;
    const file = this.byName.get(segment)!;
    expect(file.length).toBe(bytes);
    expect(offset + length).toBeLessThanOrEqual(bytes);
    return file.slice(offset, offset + length);
  };

  find(parts: LoadedPart[], id: string): string | null {
    const { read } = this;
    const place = runLookup(findPlace(sha256, parts, fromHex(id)), read);
    if (place === null || place instanceof Promise) return null;
    const record = runLookup(readRecord(sha256, place), read) as Uint8Array;
    return fromUtf8(recordBody(record, fromHex(id), 'proof')!.part);
  }
}

const code = (run: () => unknown): string => {
  try {
    run();
  } catch (error) {
    if (error instanceof ProtocolError) return error.code;
    throw error;
  }
  return 'none';
};

describe('index segment', () => {
  it('finds every id that it contains and no other', () => {
    const files = new Files();
    const all = ids(1000);
    const { name, file, rows } = bodies(all, 'body');
    files.byName.set(name, file);
    const part = files.addPart(packRows([...rows].reverse()));
    for (const id of all) expect(files.find([part], id)).toBe(`body ${id}`);
    for (const id of ids(200, 'absent')) expect(files.find([part], id)).toBeNull();
  });

  it('distinguishes ids with equal first halves, also across blocks', () => {
    const files = new Files();
    const start = ids(1)[0]!.slice(0, 16);
    const all = Array.from({ length: 100 }, (_, i) => start + i.toString(16).padStart(16, '8'));
    const { name, file, rows } = bodies(all, 'body');
    files.byName.set(name, file);
    const part = files.addPart(packRows(rows));
    for (const id of all) expect(files.find([part], id)).toBe(`body ${id}`);
    expect(files.find([part], start + 'f'.repeat(16))).toBeNull();
  });

  it('reads each block of rows and of the file table once, and the record on every lookup', () => {
    const files = new Files();
    const all = ids(100);
    const { name, file, rows } = bodies(all, 'body');
    files.byName.set(name, file);
    const part = files.addPart(packRows(rows));
    const readsFor = (id: string): number => {
      const before = files.reads;
      expect(files.find([part], id)).not.toBeNull();
      return files.reads - before;
    };
    expect(readsFor(all[0]!)).toBe(3);
    expect(readsFor(all[1]!)).toBe(1);
    expect(readsFor(all[16]!)).toBe(2);
    expect(readsFor(all[0]!)).toBe(1);
  });

  it('supports leaf indexes and proof numbers beyond 32 bits', () => {
    const files = new Files();
    const [id] = ids(1);
    const { name, file, rows } = bodies([id!], 'body', 2 ** 40 + 3);
    files.byName.set(name, file);
    const packed = packRows(rows);
    expect(leafRange(packed)).toEqual({ first: 2 ** 40 + 3, last: 2 ** 40 + 3 });
    const place = runLookup(findPlace(sha256, [files.addPart(packed)], fromHex(id!)), files.read);
    expect(place).toMatchObject({ leafIndex: 2 ** 40 + 3, proofNumber: 2 ** 40 + 3 });
  });

  it('is rejected when any byte of its resident part was changed', () => {
    const rows = packRows(bodies(ids(70), 'body').rows);
    const { bytes, residentBytes } = encodeIndexPart(sha256, rows);
    const pin = pinOf(rows, bytes, residentBytes);
    for (let at = 0; at < residentBytes; at += 7) {
      const changed = bytes.slice(0, residentBytes);
      changed[at]! ^= 1;
      expect(code(() => openIndexPart(sha256, changed, pin))).toBe('malformed_snapshot');
    }
  });

  it('makes a lookup throw, not miss, when any byte that the lookup reads was changed', () => {
    const all = ids(70);
    const { name, file, rows } = bodies(all, 'body');
    const packed = packRows(rows);
    const { bytes, residentBytes } = encodeIndexPart(sha256, packed);
    const whole = toHex(sha256(bytes));
    const pin = pinOf(packed, bytes, residentBytes);
    for (let at = residentBytes; at < bytes.length; at++) {
      const changed = bytes.slice();
      changed[at]! ^= 1;
      const files = new Files();
      files.byName.set(name, file).set(whole, changed);
      const part = loadedPart(whole, openIndexPart(sha256, bytes.slice(0, residentBytes), pin));
      // The row that contains the byte. The file table has one row, which every row needs.
      const row = Math.min(Math.floor((at - residentBytes) / ROW_BYTES), all.length - 1);
      expect(code(() => files.find([part], all[row]!))).toBe('malformed_snapshot');
      expect(code(() => decodeIndexPart(sha256, changed, pin))).toBe('malformed_snapshot');
    }
  });

  it('makes a lookup throw when any byte of the record was changed', () => {
    const all = ids(3);
    const { name, file, rows } = bodies(all, 'body');
    const packed = packRows(rows);
    for (let at = 0; at < file.length; at++) {
      const changed = file.slice();
      changed[at]! ^= 1;
      const files = new Files();
      files.byName.set(name, changed);
      const part = files.addPart(packed);
      const hit = rows.find((row) => at >= row.offset && at < row.offset + row.length)!;
      expect(code(() => files.find([part], hit.id))).toBe('malformed_snapshot');
    }
  });

  it('is rejected when the manifest narrows its id range, or its ids are out of order', () => {
    const rows = packRows(bodies(ids(70), 'body').rows);
    const { bytes, residentBytes } = encodeIndexPart(sha256, rows);
    const pin = pinOf(rows, bytes, residentBytes);
    const resident = bytes.slice(0, residentBytes);
    expect(code(() => openIndexPart(sha256, resident, { ...pin, least: rowId(rows, 1) }))).toBe(
      'malformed_snapshot',
    );
    expect(code(() => openIndexPart(sha256, resident, { ...pin, greatest: rowId(rows, 5) }))).toBe(
      'malformed_snapshot',
    );
    const unsorted = { ...rows, low: rows.low.slice(), high: rows.high.slice() };
    unsorted.high.reverse();
    unsorted.low.reverse();
    const encoded = encodeIndexPart(sha256, unsorted);
    const ownPin = pinOf(unsorted, encoded.bytes, encoded.residentBytes);
    expect(
      code(() => openIndexPart(sha256, encoded.bytes.slice(0, encoded.residentBytes), ownPin)),
    ).toBe('malformed_snapshot');
  });
});

describe('index segment format', () => {
  it('has unchanged bytes, on which other readers may depend', () => {
    const { file, rows } = bodies(ids(40), 'body');
    expect(toHex(sha256(file))).toBe(
      'a985402af9af10cdae130f2a5b3da5b04eb95abdf05cba2133fbfb2dde98f413',
    );
    const { bytes, residentBytes } = encodeIndexPart(sha256, packRows(rows));
    expect(residentBytes).toBe(32 + 8 * 40 + 32 * 3 + 32);
    expect(bytes.length).toBe(residentBytes + 48 * 40 + 40);
    expect(toHex(sha256(bytes))).toBe(
      '3976f4b56267c3369c9143d4141d01b86c559431f508bc6c10c0e6623034da4d',
    );
  });
});

describe('several index segments', () => {
  it('return the newest row of an id, merged or not, in any order of merging', () => {
    fc.assert(
      fc.property(
        fc.array(fc.array(fc.integer({ min: 0, max: 40 }), { minLength: 1, maxLength: 20 }), {
          minLength: 1,
          maxLength: 6,
        }),
        fc.nat(5),
        fc.nat(5),
        (groups, a, b) => {
          const pool = ids(41);
          const files = new Files();
          const expected = new Map<string, string>();
          const columns = groups.map((group, i) => {
            const members = [...new Set(group)].map((n) => pool[n]!);
            for (const id of members) expected.set(id, `v${i} ${id}`);
            const { name, file, rows } = bodies(members, `v${i}`);
            files.byName.set(name, file);
            return packRows(rows);
          });
          const from = Math.min(a, b, columns.length - 1);
          const to = Math.min(Math.max(a, b), columns.length - 1);
          const merged = mergeRows(columns.slice(from, to + 1));
          const parts = [...columns.slice(0, from), merged, ...columns.slice(to + 1)].map((rows) =>
            files.addPart(rows),
          );
          for (const id of pool) {
            expect(files.find(parts, id)).toBe(expected.get(id) ?? null);
          }
        },
      ),
      { numRuns: 100 },
    );
  });
});
