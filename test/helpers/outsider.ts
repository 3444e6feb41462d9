import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'vitest';
import { fromUtf8, toHex } from '#protocol/bytes';
import { openCheckpoint } from '#protocol/checkpoint';
import { parseEntry } from '#protocol/entries';
import { HASH_BYTES, leafHash, rootOf } from '#protocol/merkle';
import { parseVkey } from '#protocol/note';
import {
  decodeFileLine,
  decodeIndexPart,
  decodeRow,
  FILE_BYTES,
  leafRange,
  RECORD_DIGEST_BYTES,
  ROW_BYTES,
  rowId,
} from '#protocol/snapshot/index-part';
import {
  CHECKPOINT_PATH,
  MANIFEST_PATH,
  openManifest,
  PROOF_PARTS,
  segmentPath,
  type IndexPartPin,
  type Manifest,
} from '#protocol/snapshot/manifest';
import { pinKeys } from '#protocol/snapshot/trust';
import {
  decodeEntryBundle,
  entriesPath,
  rootFromTiles,
  tilePath,
  tilesBetween,
} from '#protocol/tiles';
import { nativeSha256, nativeVerify } from '#runtime/crypto/node';

const hashOf = (bytes: Uint8Array): string => toHex(nativeSha256(bytes));

/** All that somebody has who trusts nobody: the directory's bytes, and the public keys. */
export interface Outsider {
  directory: string;
  logVkey: string;
  snapshotVkey: string;
}

/**
 * Reads everything that checkpoint and manifest commit to, down to the last body, and holds it
 * against them. Returns the manifest.
 */
export async function auditSnapshot({
  directory,
  logVkey,
  snapshotVkey,
}: Outsider): Promise<Manifest> {
  const read = (path: string): Promise<Uint8Array> => readFile(join(directory, path));
  const log = parseVkey(logVkey);
  const note = fromUtf8(await read(CHECKPOINT_PATH));
  const checkpoint = openCheckpoint(note, log, log.name, nativeVerify);
  const { manifest } = openManifest(nativeVerify, await read(MANIFEST_PATH), {
    log: pinKeys(nativeSha256, [logVkey]),
    snapshot: pinKeys(nativeSha256, [snapshotVkey]),
  });
  expect(manifest.tree_size).toBeLessThanOrEqual(checkpoint.size);

  // The checkpoint's tree, from its entries upwards, and in it the smaller one of the manifest.
  const entries = await entriesOf(read, checkpoint.size);
  const hashes = entries.map((entry) => leafHash(nativeSha256, entry));
  for (const { size, root } of [
    checkpoint,
    { size: manifest.tree_size, root: Buffer.from(manifest.root, 'base64') },
  ]) {
    expect(toHex(rootOf(nativeSha256, hashes.slice(0, size)))).toBe(toHex(root));
    const fromTiles = await rootFromTiles(nativeSha256, size, (level, index, width) =>
      read(tilePath(level, index, width)),
    );
    expect(toHex(fromTiles)).toBe(toHex(root));
    for (const { level, index, width } of tilesBetween(0, size)) {
      const tile = await read(tilePath(level, index, width));
      expect(tile.length).toBe(width * HASH_BYTES);
      if (level > 0) continue;
      const below = hashes.slice(index * 256, index * 256 + width);
      expect(toHex(tile)).toBe(below.map(toHex).join(''));
    }
  }

  expect(hashOf(await read(segmentPath(manifest.keys.sha256)))).toBe(manifest.keys.sha256);
  const published = new Map<string, number>();
  for (const pin of manifest.index_parts) {
    for (const { id, leafIndex } of await rowsOf(read, pin)) {
      if (pin.kind === PROOF_PARTS) published.set(id, leafIndex);
    }
  }
  // Every proof of the manifest's tree has a record, and nothing else has one.
  const inTree = entries.slice(0, manifest.tree_size).flatMap((bytes, leafIndex) => {
    const entry = parseEntry(bytes);
    return entry.type === 'proof' ? [[entry.proof_id, leafIndex] as const] : [];
  });
  expect([...published].sort()).toEqual(inTree.sort());
  expect(manifest.proofs).toBe(inTree.length);

  // What stands under the name of its content has that content, referred to or not.
  for (const name of await readdir(join(directory, 'lookup/segments'))) {
    expect(hashOf(await read(segmentPath(name)))).toBe(name);
  }
  return manifest;
}

type Read = (path: string) => Promise<Uint8Array>;

async function entriesOf(read: Read, size: number): Promise<Uint8Array[]> {
  const entries: Uint8Array[] = [];
  for (const { level, index, width } of tilesBetween(0, size)) {
    if (level > 0) continue;
    const bundle = decodeEntryBundle(await read(entriesPath(index, width)));
    expect(bundle.length).toBe(width);
    entries.push(...bundle);
  }
  return entries;
}

/** The rows of an index part, with every record that they lead to read and hashed. */
async function rowsOf(read: Read, pin: IndexPartPin): Promise<{ id: string; leafIndex: number }[]> {
  const bytes = await read(segmentPath(pin.sha256));
  expect(hashOf(bytes)).toBe(pin.sha256);
  const rows = decodeIndexPart(nativeSha256, bytes, pin);
  expect(leafRange(rows)).toEqual({ first: pin.first_leaf, last: pin.last_leaf });
  const files: Uint8Array[] = [];
  for (let at = 0; at < rows.files.length; at += FILE_BYTES) {
    const { name, bytes: length } = decodeFileLine(rows.files.subarray(at, at + FILE_BYTES));
    const file = await read(segmentPath(name));
    expect([file.length, hashOf(file)]).toEqual([length, name]);
    files.push(file);
  }
  return Array.from(rows.high, (_, i) => {
    const row = decodeRow(rows.rows.subarray(i * ROW_BYTES, (i + 1) * ROW_BYTES));
    const { fileNumber, offset, length, leafIndex, digest } = row;
    const record = files[fileNumber]!.subarray(offset, offset + length);
    expect(record.length).toBe(length);
    const found = nativeSha256(record).subarray(0, RECORD_DIGEST_BYTES);
    expect(toHex(found)).toBe(toHex(digest));
    return { id: rowId(rows, i), leafIndex };
  });
}
