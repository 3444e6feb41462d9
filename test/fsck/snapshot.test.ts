import { mkdtempSync, rmSync } from 'node:fs';
import { cp, mkdir, readdir, readFile, rm, truncate, utimes, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { toHex } from '#protocol/bytes';
import {
  encodeIndexPart,
  decodeIndexPart,
  packRows,
  FILE_BYTES,
  leafRange,
  rowId,
  type IndexRow,
} from '#protocol/snapshot/index-part';
import {
  MANIFEST_PATH,
  openManifest,
  PACKAGE_PARTS,
  PROOF_PARTS,
  segmentPath,
  SHARE_PARTS,
  signManifest,
  type IndexPartPin,
  type Manifest,
} from '#protocol/snapshot/manifest';
import { keyId } from '#protocol/note';
import { tokenHash } from '#protocol/snapshot/share';
import { pinKeys } from '#protocol/snapshot/trust';
import { rowAt } from '#fsck/snapshot/parts';
import { nativeSha256, nativeVerify } from '#runtime/crypto/node';
import { toUuid } from '#sql/db/columns';
import { checked, flipped, type Plantation, type Planted } from '../fixtures/planted.js';
import { SNAPSHOT_NAME, testKey, type TestKey } from '../fixtures/snapshot.js';
import { soundPlantation, type SoundPlantation } from '../fixtures/sound-plantation.js';
import type { SoundRegistry } from '../fixtures/sound-registry.js';

/** Each case damages one thing in a copy of a sound snapshot and expects exactly its findings. */

let planted: SoundPlantation;
let sound: SoundRegistry;
let plantation: Plantation;
/** An earlier manifest with all of its files. */
const earlier = mkdtempSync(join(tmpdir(), 'svc-earlier-'));

beforeAll(async () => {
  planted = await soundPlantation((directory) => cp(directory, earlier, { recursive: true }));
  ({ sound, plantation } = planted);
});
afterEach(() => plantation.clear());
afterAll(async () => {
  await planted.drop();
  rmSync(earlier, { recursive: true });
});

const trust = () => ({
  log: pinKeys(nativeSha256, [sound.logVkey]),
  snapshot: pinKeys(nativeSha256, [sound.snapshotVkey]),
});

async function manifestIn(folder: string): Promise<Manifest> {
  return openManifest(nativeVerify, await readFile(join(folder, MANIFEST_PATH)), trust()).manifest;
}

/** Writes a manifest signed with the given key. */
async function sign(at: Planted, manifest: Manifest, key: TestKey): Promise<void> {
  const keyHash = keyId(nativeSha256, SNAPSHOT_NAME, key.publicKey);
  const signer = { name: SNAPSHOT_NAME, keyHash, sign: key.sign.bind(key) };
  await writeFile(at.file(MANIFEST_PATH), signManifest(manifest, signer));
}

const put = (at: Planted, path: string, bytes: Uint8Array): Promise<void> =>
  writeFile(at.file(path), bytes);

async function partsOf(at: Planted, kind: string): Promise<IndexPartPin[]> {
  return (await manifestIn(at.directory)).index_parts.filter((pin) => pin.kind === kind);
}

async function rowsIn(at: Planted, pin: IndexPartPin): Promise<IndexRow[]> {
  const bytes = await readFile(at.file(segmentPath(pin.sha256)));
  const rows = decodeIndexPart(nativeSha256, bytes, pin);
  return Array.from(rows.high, (_, i) => {
    const { file, ...row } = rowAt(rows, i, pin);
    return { ...row, file: file.name, fileBytes: file.bytes };
  });
}

async function placeOf(at: Planted, kind: string, id: string): Promise<IndexRow> {
  for (const pin of (await partsOf(at, kind)).reverse()) {
    const row = (await rowsIn(at, pin)).find((one) => one.id === id);
    if (row !== undefined) return row;
  }
  throw new Error(`${id} is not indexed`);
}

/** An attacker with the snapshot key: altered rows under a manifest that verifies. */
async function reindexed(
  at: Planted,
  kind: string,
  change: (rows: IndexRow[]) => Promise<IndexRow[]> | IndexRow[],
): Promise<Manifest> {
  const manifest = await manifestIn(at.directory);
  const pins: IndexPartPin[] = [];
  for (const pin of manifest.index_parts) {
    if (pin.kind !== kind) {
      pins.push(pin);
      continue;
    }
    pins.push(await partOf(at, kind, await change(await rowsIn(at, pin))));
  }
  return { ...manifest, generation: manifest.generation + 1, index_parts: pins };
}

/** Writes an index segment of these rows. */
async function partOf(at: Planted, kind: string, rows: IndexRow[]): Promise<IndexPartPin> {
  const columns = packRows(rows);
  const { bytes, residentBytes } = encodeIndexPart(nativeSha256, columns);
  const sha256 = toHex(nativeSha256(bytes));
  await put(at, segmentPath(sha256), bytes);
  const { first, last } = leafRange(columns);
  return {
    kind,
    sha256,
    bytes: bytes.length,
    resident_bytes: residentBytes,
    resident_sha256: toHex(nativeSha256(bytes.subarray(0, residentBytes))),
    entries: columns.high.length,
    files: columns.files.length / FILE_BYTES,
    least: rowId(columns, 0),
    greatest: rowId(columns, columns.high.length - 1),
    first_leaf: first,
    last_leaf: last,
  };
}

/** Replaces text of the same length in the record of an id, with new digests and index. */
async function rewritten(
  at: Planted,
  kind: string,
  id: string,
  from: string,
  to: string,
): Promise<Manifest> {
  const place = await placeOf(at, kind, id);
  const file = await readFile(at.file(segmentPath(place.file)));
  const record = file.subarray(place.offset, place.offset + place.length);
  const where = record.indexOf(from);
  if (where < 0 || from.length !== to.length) throw new Error(`no ${from} in ${record.toString()}`);
  record.write(to, where);
  const name = toHex(nativeSha256(file));
  await put(at, segmentPath(name), file);
  return reindexed(at, kind, (rows) =>
    rows.map((row) =>
      row.file !== place.file
        ? row
        : {
            ...row,
            file: name,
            digest: row.id === id ? nativeSha256(record).slice(0, 16) : row.digest,
          },
    ),
  );
}

const lastOther = (last: string): string => (last === '0' ? '1' : '0');

const byPublisher = (at: Planted, manifest: Manifest) => sign(at, manifest, sound.snapshotKey);

const tile0 = 'tile/0/000';
const bundle0 = 'tile/entries/000';

type Row = [what: string, plant: (at: Planted) => Promise<unknown>, found: Record<string, number>];

const table: Row[] = [
  [
    'a flipped byte in a segment',
    async (at) => {
      const { file, offset } = await placeOf(at, PROOF_PARTS, sound.world.old[50]!);
      await put(at, segmentPath(file), await flipped(at.file(segmentPath(file)), offset + 200));
    },
    { segment_altered: 1 },
  ],
  [
    'a truncated segment',
    async (at) => {
      const { file } = await placeOf(at, PROOF_PARTS, sound.world.old[50]!);
      const bytes = await readFile(at.file(segmentPath(file)));
      await truncate(at.file(segmentPath(file)), bytes.length - 10);
    },
    { segment_altered: 1 },
  ],
  [
    'a missing segment',
    async (at) => {
      const { file } = await placeOf(at, PROOF_PARTS, sound.world.old[50]!);
      await rm(at.file(segmentPath(file)));
    },
    { segment_missing: 1 },
  ],
  [
    'a flipped byte in an index segment',
    async (at) => {
      const path = segmentPath((await partsOf(at, PROOF_PARTS))[0]!.sha256);
      await put(at, path, await flipped(at.file(path), -100));
    },
    { part_altered: 1 },
  ],
  [
    'a missing index segment',
    async (at) => rm(at.file(segmentPath((await partsOf(at, SHARE_PARTS))[0]!.sha256))),
    { segment_missing: 1 },
  ],
  [
    'a flipped byte in a tile',
    async (at) => put(at, tile0, await flipped(at.file(tile0), 320)),
    { public_tile_altered: 1 },
  ],
  ['a missing tile', (at) => rm(at.file(tile0)), { public_tile_missing: 1 }],
  [
    'a tile with trailing bytes',
    async (at) => {
      const folder = at.file('tile/0/001.p');
      const [name = ''] = (await readdir(folder)).sort((a, b) => Number(b) - Number(a));
      const bytes = await readFile(join(folder, name));
      await writeFile(join(folder, name), Buffer.concat([bytes, Buffer.alloc(32)]));
    },
    { public_tile_altered: 1 },
  ],
  [
    'a flipped byte in an entry bundle',
    async (at) => put(at, bundle0, await flipped(at.file(bundle0), 40_000)),
    { bundle_altered: 1 },
  ],
  ['a truncated entry bundle', (at) => truncate(at.file(bundle0), 40_000), { bundle_altered: 1 }],
  ['a missing entry bundle', (at) => rm(at.file(bundle0)), { bundle_missing: 1 }],
  [
    'a flipped byte in the manifest',
    async (at) => put(at, MANIFEST_PATH, await flipped(at.file(MANIFEST_PATH), 200)),
    { manifest_unverifiable: 1 },
  ],
  ['a missing manifest', (at) => rm(at.file(MANIFEST_PATH)), { manifest_missing: 1 }],
  [
    'an altered status under a manifest signed with another key',
    async (at) => {
      const id = sound.world.old[5]!;
      const manifest = await rewritten(at, PROOF_PARTS, id, '"REVOKED"', '"VALID"  ');
      await sign(at, manifest, testKey());
    },
    { manifest_unverifiable: 1 },
  ],
  [
    'a revoked proof reported as valid, under a correctly signed manifest',
    async (at) => {
      const id = sound.world.old[5]!;
      const from = '"verification_status":"REVOKED","can_assert_validity":false';
      const to = '"verification_status":"VALID"  ,"can_assert_validity":true ';
      await byPublisher(at, await rewritten(at, PROOF_PARTS, id, from, to));
    },
    // The passport has its own verification; a package shows the published status of its members.
    { body_asserts: 1 },
  ],
  [
    'a valid proof that is not reported as valid',
    async (at) => {
      const id = sound.world.old[50]!;
      const from = '"verification_status":"VALID","can_assert_validity":true,"frontend';
      const to = '"verification_status":"BACK","can_assert_validity":false,"frontend';
      await byPublisher(at, await rewritten(at, PROOF_PARTS, id, from, to.padEnd(from.length)));
    },
    { body_differs: 1 },
  ],
  [
    'a body with an altered fact',
    async (at) => {
      const id = sound.world.old[50]!;
      await byPublisher(at, await rewritten(at, PROOF_PARTS, id, '"sandbox"', '"sendbox"'));
    },
    { body_differs: 1 },
  ],
  [
    'a history with an invented event',
    async (at) => {
      const id = sound.world.old[5]!;
      const manifest = await rewritten(
        at,
        PROOF_PARTS,
        id,
        '"event":"revoked"',
        '"event":"expired"',
      );
      await byPublisher(at, manifest);
    },
    { history_differs: 1 },
  ],
  [
    'a proof missing from the index',
    async (at) => {
      const id = sound.world.old[50]!;
      const drop = (rows: IndexRow[]) => rows.filter((row) => row.id !== id);
      await byPublisher(at, await reindexed(at, PROOF_PARTS, drop));
    },
    { record_missing: 1 },
  ],
  [
    'an unknown proof in the index',
    async (at) => {
      const add = (rows: IndexRow[]) =>
        rows.some((row) => row.id === sound.world.old[50])
          ? [...rows, { ...rows[0]!, id: '0'.repeat(31) + '1' }]
          : rows;
      await byPublisher(at, await reindexed(at, PROOF_PARTS, add));
    },
    { record_unknown: 1 },
  ],
  [
    'a row that refers to another record',
    async (at) => {
      const [one, other] = [sound.world.old[50]!, sound.world.old[51]!];
      const place = await placeOf(at, PROOF_PARTS, other);
      const swap = (rows: IndexRow[]) =>
        rows.map((row) =>
          row.id === one
            ? { ...row, offset: place.offset, length: place.length, digest: place.digest }
            : row,
        );
      await byPublisher(at, await reindexed(at, PROOF_PARTS, swap));
    },
    { record_malformed: 1 },
  ],
  [
    'a row with another leaf index',
    async (at) => {
      const move = (rows: IndexRow[]) =>
        rows.map((row) => (row.id === sound.world.old[50] ? { ...row, proofNumber: 7 } : row));
      await byPublisher(at, await reindexed(at, PROOF_PARTS, move));
    },
    { row_differs: 1 },
  ],
  [
    'a manifest with another number of proofs',
    async (at) => {
      const manifest = await manifestIn(at.directory);
      await byPublisher(at, { ...manifest, proofs: manifest.proofs - 1 });
    },
    { manifest_differs: 1 },
  ],
  [
    'served keys that are not in the log',
    async (at) => {
      const manifest = await manifestIn(at.directory);
      const file = await readFile(at.file(segmentPath(manifest.keys.sha256)), 'utf8');
      const other = Buffer.from(file.replace('"activated_at":0', '"activated_at":1'));
      const sha256 = toHex(nativeSha256(other));
      await put(at, segmentPath(sha256), other);
      await byPublisher(at, { ...manifest, keys: { sha256, bytes: other.length } });
    },
    { keys_file_differs: 1 },
  ],
  [
    'a served key compromise without a log entry',
    async (at) => {
      const manifest = await manifestIn(at.directory);
      const file = await readFile(at.file(segmentPath(manifest.keys.sha256)), 'utf8');
      const other = Buffer.from(file.replace('"compromised_from":null', '"compromised_from":9'));
      const sha256 = toHex(nativeSha256(other));
      await put(at, segmentPath(sha256), other);
      await byPublisher(at, { ...manifest, keys: { sha256, bytes: other.length } });
    },
    { keys_file_differs: 1 },
  ],
  [
    'a revoked token with a target',
    async (at) => {
      // The record of an active token in place of that of a revoked one.
      const pins = await partsOf(at, SHARE_PARTS);
      const all = (await Promise.all(pins.map((pin) => rowsIn(at, pin)))).flat();
      const ended = all.reduce((a, b) => (a.length < b.length ? a : b));
      const live = all.find((row) => row.length > ended.length)!;
      const swap = (rows: IndexRow[]) =>
        rows.map((row) =>
          row.id === ended.id ? { ...live, id: row.id, leafIndex: row.leafIndex } : row,
        );
      await byPublisher(at, await reindexed(at, SHARE_PARTS, swap));
    },
    { share_record_differs: 1 },
  ],
  [
    'a token missing from the index',
    async (at) => {
      // Always the first: without the row of the last change the segments would end before it,
      // and the change would count as one for the next publish cycle.
      const id = toHex(tokenHash(nativeSha256, sound.world.tokens[0]!)).slice(0, 32);
      const drop = (rows: IndexRow[]) => rows.filter((row) => row.id !== id);
      await byPublisher(at, await reindexed(at, SHARE_PARTS, drop));
    },
    { share_record_missing: 1 },
  ],
  [
    'an altered package',
    async (at) => {
      const id = sound.world.packages[0]!.slice('pkg_'.length);
      await byPublisher(at, await rewritten(at, PACKAGE_PARTS, id, '"sandbox"', '"sendbox"'));
    },
    { package_record_differs: 1 },
  ],
  [
    'a restored earlier manifest',
    async (at) => cp(join(earlier, MANIFEST_PATH), at.file(MANIFEST_PATH)),
    { manifest_went_back: 1 },
  ],
  [
    'a checkpoint without a pinned signature',
    async (at) => put(at, 'checkpoint', await flipped(at.file('checkpoint'), -20)),
    { public_checkpoint_unverifiable: 1 },
  ],
];

describe('fsck of the snapshot finds', () => {
  it.each(table)('%s', async (_what, plant, found) => {
    const copy = await plantation.copy();
    await plant(copy);
    // Without a seen generation the earlier manifest is only a minute behind.
    await copy.damage(`update svc.checkpoint set created_at = created_at - interval '2 minutes'`);
    const { corrupt, code, findings, err } = await checked(copy.env);
    expect({ corrupt, err, findings }).toMatchObject({ corrupt: found, err: '' });
    expect(corrupt).toEqual(found);
    expect(code).toBe(1);
    for (const { where, expected, advice } of findings) {
      expect([where, expected, advice].every((text) => text !== '')).toBe(true);
    }
  });

  it('contradictions to the public log, without the registry', async () => {
    const copy = await plantation.copy();
    const id = sound.world.old[5]!;
    // Its status is right, but its body reports it as valid.
    const from = '"verification_status":"REVOKED","can_assert_validity":false';
    const to = '"verification_status":"REVOKED","can_assert_validity":true ';
    await byPublisher(copy, await rewritten(copy, PROOF_PARTS, id, from, to));
    const env = { ...copy.env, DATABASE_URL: '' };
    const { corrupt, code, document } = await checked(env, '--only', 'snapshot');
    expect(corrupt).toEqual({ body_asserts: 1 });
    expect(code).toBe(1);
    expect(document['left_out']).toContain('the registry');
  });

  it('tokens and packages that contradict published records, without the registry', async () => {
    const copy = await plantation.copy();
    const env = { ...copy.env, DATABASE_URL: '' };
    expect(await checked(env, '--only', 'snapshot')).toMatchObject({ corrupt: {}, code: 0 });
    const [a, b] = (
      await Promise.all((await partsOf(copy, SHARE_PARTS)).map((pin) => rowsIn(copy, pin)))
    )
      .flat()
      .sort((one, other) => other.length - one.length);
    const swap = (rows: IndexRow[]) =>
      rows.map((row) => (row.id === a!.id ? { ...b!, id: row.id, leafIndex: row.leafIndex } : row));
    await byPublisher(copy, await reindexed(copy, SHARE_PARTS, swap));
    const id = sound.world.packages[0]!.slice('pkg_'.length);
    await byPublisher(copy, await rewritten(copy, PACKAGE_PARTS, id, '"sandbox"', '"sendbox"'));
    const { corrupt } = await checked(env, '--only', 'snapshot', '--restart');
    expect(corrupt).toEqual({ share_record_differs: 1, package_record_differs: 1 });
  });

  it('only findings of current token and package rows, without the registry', async () => {
    const copy = await plantation.copy();
    const manifest = await manifestIn(copy.directory);
    const pin = manifest.index_parts.find(({ kind }) => kind === SHARE_PARTS)!;
    const [a, b] = await rowsIn(copy, pin);
    // An older row of a token: rows that a newer one shadows are not reported.
    const old = await partOf(copy, SHARE_PARTS, [{ ...b!, id: a!.id, leafIndex: a!.leafIndex }]);
    const { generation, index_parts: pins } = manifest;
    const parts = [...pins.slice(0, pins.indexOf(pin)), old, ...pins.slice(pins.indexOf(pin))];
    await byPublisher(copy, { ...manifest, generation: generation + 1, index_parts: parts });
    const { corrupt } = await checked({ ...copy.env, DATABASE_URL: '' }, '--only', 'snapshot');
    expect(corrupt).toEqual({});
  });

  it('a token with an unpublished package, without the registry', async () => {
    const copy = await plantation.copy();
    const ids = sound.world.packages.map((id) => id.slice('pkg_'.length));
    const other = (rows: IndexRow[]) =>
      rows.map((row) =>
        ids.includes(row.id) ? { ...row, id: row.id.replace(/.$/, lastOther) } : row,
      );
    await byPublisher(copy, await reindexed(copy, PACKAGE_PARTS, other));
    const { findings } = await checked({ ...copy.env, DATABASE_URL: '' }, '--only', 'snapshot');
    const expected = findings.filter(({ code }) => code === 'share_record_differs');
    expect(expected.map((one) => one.expected)).toContain('a package that is published');
  });

  it('a proof that fails here although verdict and snapshot report it as valid', async () => {
    const { env, damage } = await plantation.copy();
    await damage(`update svc.proof set aep = set_byte(aep, 40, get_byte(aep, 40) # 1)
      where proof_id = '${toUuid(sound.world.old[100]!)}'`);
    const { corrupt } = await checked(env);
    expect(corrupt).toEqual({ aep_altered: 1, verdict_passes: 1, body_asserts: 1 });
  });

  it('a database with another log than the public one', async () => {
    const { env, damage } = await plantation.copy();
    await damage(`delete from svc.checkpoint;
      update svc.log_entry set at = at + interval '1 second', body = convert_to(regexp_replace(
        convert_from(body, 'UTF8'), '"time":"[^"]*"', '"time":"' || to_char((at + interval '1 second')
        at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') || '"'), 'UTF8') where kind = 2;
      update svc.tile set hashes = overlay(hashes placing sha256('\\x00'::bytea || e.body)
        from (e.leaf_index % 256 * 32 + 1)::int for 32)
        from svc.log_entry e where e.kind = 2 and level = 0 and tile_index = e.leaf_index / 256`);
    const { corrupt } = await checked(env);
    expect(corrupt).toEqual({ log_forked: 2, verdict_root_differs: 1 });
  });
});

describe('fsck of unreferenced files', () => {
  it('reports them as notices, with a separate count of those older than an hour', async () => {
    const { env, file } = await plantation.copy();
    for (const [name, age] of [
      ['ab'.repeat(32), 0],
      ['cd'.repeat(32), 3_601],
      ['no name', 3_601],
    ] as const) {
      const path = file(segmentPath(name));
      await mkdir(dirname(path), { recursive: true });
      await writeFile(path, 'x');
      const at = Date.now() / 1000 - age;
      await utimes(path, at, at);
    }
    const { code, notices, findings } = await checked(env);
    expect(code).toBe(0);
    // Slow test runs also give notices on a waiting admission and an expired snapshot.
    expect(notices).toMatchObject({ orphans: 1, orphans_young: 1 });
    expect(findings.find((one) => one.code === 'orphans')?.expected).toContain('found 2');
  });
});
