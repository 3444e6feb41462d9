import { cp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { rowAt } from '#fsck/snapshot/parts';
import { toHex } from '#protocol/bytes';
import { keyId } from '#protocol/note';
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
import { tokenHash } from '#protocol/snapshot/share';
import { pinKeys } from '#protocol/snapshot/trust';
import { nativeSha256, nativeVerify } from '#runtime/crypto/node';
import { flipped, type Planted } from '../fixtures/planted.js';
import { SNAPSHOT_NAME, testKey, type TestKey } from '../fixtures/snapshot.js';

export async function manifestOf({ sound, file }: Planted): Promise<Manifest> {
  const trust = {
    log: pinKeys(nativeSha256, [sound.logVkey]),
    snapshot: pinKeys(nativeSha256, [sound.snapshotVkey]),
  };
  return openManifest(nativeVerify, await readFile(file(MANIFEST_PATH)), trust).manifest;
}

/** Writes a manifest signed with the given key. */
async function sign(at: Planted, manifest: Manifest, key: TestKey): Promise<void> {
  const keyHash = keyId(nativeSha256, SNAPSHOT_NAME, key.publicKey);
  const signer = { name: SNAPSHOT_NAME, keyHash, sign: key.sign.bind(key) };
  await writeFile(at.file(MANIFEST_PATH), signManifest(manifest, signer));
}

const put = (at: Planted, path: string, bytes: Uint8Array): Promise<void> =>
  writeFile(at.file(path), bytes);

export async function partsOf(at: Planted, kind: string): Promise<IndexPartPin[]> {
  return (await manifestOf(at)).index_parts.filter((pin) => pin.kind === kind);
}

export async function rowsIn(at: Planted, pin: IndexPartPin): Promise<IndexRow[]> {
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

/** An attacker with the snapshot key: altered rows in a correctly signed manifest. */
export async function reindexed(
  at: Planted,
  kind: string,
  change: (rows: IndexRow[]) => Promise<IndexRow[]> | IndexRow[],
): Promise<Manifest> {
  const manifest = await manifestOf(at);
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
export async function partOf(at: Planted, kind: string, rows: IndexRow[]): Promise<IndexPartPin> {
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
export async function rewritten(
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

export const byPublisher = (at: Planted, manifest: Manifest): Promise<void> =>
  sign(at, manifest, at.sound.snapshotKey);

const tile0 = 'tile/0/000';
const bundle0 = 'tile/entries/000';

/** One damage of the snapshot, and exactly its findings. */
type Row = [what: string, found: Record<string, number>, plant: (at: Planted) => Promise<unknown>];

const damage = (...row: Row): Row => row;

async function withKeys(at: Planted, from: string, to: string): Promise<void> {
  const manifest = await manifestOf(at);
  const file = await readFile(at.file(segmentPath(manifest.keys.sha256)), 'utf8');
  const other = Buffer.from(file.replace(from, to));
  const sha256 = toHex(nativeSha256(other));
  await put(at, segmentPath(sha256), other);
  await byPublisher(at, { ...manifest, keys: { sha256, bytes: other.length } });
}

export const DAMAGES: Row[] = [
  damage('a flipped byte in a segment', { segment_altered: 1 }, async (at) => {
    const { file, offset } = await placeOf(at, PROOF_PARTS, at.sound.world.old[50]!);
    await put(at, segmentPath(file), await flipped(at.file(segmentPath(file)), offset + 200));
  }),
  damage('a missing segment', { segment_missing: 1 }, async (at) => {
    const { file } = await placeOf(at, PROOF_PARTS, at.sound.world.old[50]!);
    await rm(at.file(segmentPath(file)));
  }),
  damage('a flipped byte in an index segment', { part_altered: 1 }, async (at) => {
    const path = segmentPath((await partsOf(at, PROOF_PARTS))[0]!.sha256);
    await put(at, path, await flipped(at.file(path), -100));
  }),
  damage('a missing index segment', { segment_missing: 1 }, async (at) =>
    rm(at.file(segmentPath((await partsOf(at, SHARE_PARTS))[0]!.sha256))),
  ),
  damage('a flipped byte in a tile', { public_tile_altered: 1 }, async (at) =>
    put(at, tile0, await flipped(at.file(tile0), 320)),
  ),
  damage('a missing tile', { public_tile_missing: 1 }, (at) => rm(at.file(tile0))),
  damage('a tile with trailing bytes', { public_tile_altered: 1 }, async (at) => {
    const folder = at.file('tile/0/001.p');
    const [name = ''] = (await readdir(folder)).sort((a, b) => Number(b) - Number(a));
    const bytes = await readFile(join(folder, name));
    await writeFile(join(folder, name), Buffer.concat([bytes, Buffer.alloc(32)]));
  }),
  damage('a flipped byte in an entry bundle', { bundle_altered: 1 }, async (at) =>
    put(at, bundle0, await flipped(at.file(bundle0), 40_000)),
  ),
  damage('a missing entry bundle', { bundle_missing: 1 }, (at) => rm(at.file(bundle0))),
  damage('a missing manifest', { manifest_missing: 1 }, (at) => rm(at.file(MANIFEST_PATH))),
  damage(
    'an altered status under a manifest signed with another key',
    { manifest_unverifiable: 1 },
    async (at) => {
      const id = at.sound.world.old[5]!;
      const manifest = await rewritten(at, PROOF_PARTS, id, '"REVOKED"', '"VALID"  ');
      await sign(at, manifest, testKey());
    },
  ),
  damage(
    'a revoked proof reported as valid, under a correctly signed manifest',
    // The passport has its own verification status; a package shows its members' published ones.
    { body_asserts: 1 },
    async (at) => {
      const id = at.sound.world.old[5]!;
      const from = '"verification_status":"REVOKED","can_assert_validity":false';
      const to = '"verification_status":"VALID"  ,"can_assert_validity":true ';
      await byPublisher(at, await rewritten(at, PROOF_PARTS, id, from, to));
    },
  ),
  damage('a body with an altered fact', { body_differs: 1 }, async (at) => {
    const id = at.sound.world.old[50]!;
    await byPublisher(at, await rewritten(at, PROOF_PARTS, id, '"sandbox"', '"sendbox"'));
  }),
  damage('a history with an invented event', { history_differs: 1 }, async (at) => {
    const id = at.sound.world.old[5]!;
    const manifest = await rewritten(at, PROOF_PARTS, id, '"event":"revoked"', '"event":"expired"');
    await byPublisher(at, manifest);
  }),
  damage('a proof missing from the index', { record_missing: 1 }, async (at) => {
    const id = at.sound.world.old[50]!;
    const drop = (rows: IndexRow[]) => rows.filter((row) => row.id !== id);
    await byPublisher(at, await reindexed(at, PROOF_PARTS, drop));
  }),
  damage('an unknown proof in the index', { record_unknown: 1 }, async (at) => {
    const add = (rows: IndexRow[]) =>
      rows.some((row) => row.id === at.sound.world.old[50])
        ? [...rows, { ...rows[0]!, id: '0'.repeat(31) + '1' }]
        : rows;
    await byPublisher(at, await reindexed(at, PROOF_PARTS, add));
  }),
  damage('a row that refers to another record', { record_malformed: 1 }, async (at) => {
    const [one, other] = [at.sound.world.old[50]!, at.sound.world.old[51]!];
    const place = await placeOf(at, PROOF_PARTS, other);
    const swap = (rows: IndexRow[]) =>
      rows.map((row) =>
        row.id === one
          ? { ...row, offset: place.offset, length: place.length, digest: place.digest }
          : row,
      );
    await byPublisher(at, await reindexed(at, PROOF_PARTS, swap));
  }),
  damage('a row with another leaf index', { row_differs: 1 }, async (at) => {
    const move = (rows: IndexRow[]) =>
      rows.map((row) => (row.id === at.sound.world.old[50] ? { ...row, proofNumber: 7 } : row));
    await byPublisher(at, await reindexed(at, PROOF_PARTS, move));
  }),
  damage('a manifest with another number of proofs', { manifest_differs: 1 }, async (at) => {
    const manifest = await manifestOf(at);
    await byPublisher(at, { ...manifest, proofs: manifest.proofs - 1 });
  }),
  damage('served keys that are not in the log', { keys_file_differs: 1 }, (at) =>
    withKeys(at, '"activated_at":0', '"activated_at":1'),
  ),
  damage('a served key compromise without a log entry', { keys_file_differs: 1 }, (at) =>
    withKeys(at, '"compromised_from":null', '"compromised_from":9'),
  ),
  damage('a revoked token with a target', { share_record_differs: 1 }, async (at) => {
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
  }),
  damage('a token missing from the index', { share_record_missing: 1 }, async (at) => {
    // Always removes the first row: without the row of the last change, the segments would end
    // earlier, and the change would count as due in the next publish cycle.
    const id = toHex(tokenHash(nativeSha256, at.sound.world.tokens[0]!)).slice(0, 32);
    const drop = (rows: IndexRow[]) => rows.filter((row) => row.id !== id);
    await byPublisher(at, await reindexed(at, SHARE_PARTS, drop));
  }),
  damage('an altered package', { package_record_differs: 1 }, async (at) => {
    const id = at.sound.world.packages[0]!.slice('pkg_'.length);
    await byPublisher(at, await rewritten(at, PACKAGE_PARTS, id, '"sandbox"', '"sendbox"'));
  }),
  damage('a restored earlier manifest', { manifest_went_back: 1 }, async (at) =>
    cp(join(at.earlier, MANIFEST_PATH), at.file(MANIFEST_PATH)),
  ),
  damage(
    'a checkpoint without a pinned signature',
    { public_checkpoint_unverifiable: 1 },
    async (at) => put(at, 'checkpoint', await flipped(at.file('checkpoint'), -20)),
  ),
];
