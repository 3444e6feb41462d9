import { equalBytes, toHex } from '#protocol/bytes';
import { readEntry } from '#protocol/entries';
import type { RevocationInHistory } from '#protocol/history';
import type { KeyedEntry } from '#protocol/keys';
import { leafHash } from '#protocol/merkle';
import { decodeEntryBundle, entriesPath, TILE_WIDTH, tilePath, tileWidth } from '#protocol/tiles';
import { parseTime } from '#protocol/time';
import { nativeSha256 } from '#runtime/crypto/node';
import { firstDifference, GrowingTree, resolveTile, type GrownTile } from '../tree.js';
import type { SnapshotContext } from './source.js';

export interface SignedHead {
  size: number;
  root: Uint8Array;
  /** The location of the entry. */
  where: string;
}

/** The contents of the public log that other checks need. */
export interface PublicLog {
  /** Revocations by proof id, in log order. They are few, so they fit in memory. */
  revocations: Map<string, (RevocationInHistory & { leafIndex: number })[]>;
  keys: KeyedEntry[];
  /** Proofs among the leaves that the manifest covers. */
  proofs: number;
  /** Leaves of the larger of the two signed heads; it determines the partial tiles and bundles. */
  size: number;
  /** Whether all entries were readable; otherwise revocations may be missing. */
  isWhole: boolean;
}

/**
 * Reads the whole log like a C2SP client: every bundle and tile must match the leaves, and lead to
 * the signed roots of manifest and checkpoint.
 *
 * @param manifestSize leaves that the manifest covers
 */
export async function checkPublicLog(
  ctx: SnapshotContext,
  heads: readonly SignedHead[],
  manifestSize: number,
  step: (leaves: number) => void,
): Promise<PublicLog> {
  const size = Math.max(...heads.map((head) => head.size));
  const tree = new GrowingTree();
  const found: PublicLog = { revocations: new Map(), keys: [], proofs: 0, size, isWhole: true };
  const reader = new PublicTiles(ctx, size);
  let isReported = false;
  for (let start = 0; start < size; start += TILE_WIDTH) {
    const hashes = await leavesOf(ctx, reader, tree, heads, start, size, (entry, leafIndex) => {
      if (entry === null) found.isWhole = false;
      else if (leafIndex < manifestSize) collect(found, entry, leafIndex);
    });
    if (hashes === null) {
      ctx.findings.unchecked(`the public log from leaf ${start} on: its bundle and tile are lost`);
      return found;
    }
    for (const hash of hashes) {
      for (const tile of tree.append(hash)) await reader.check(tile);
      const head = heads.find((one) => one.size === tree.size);
      if (head !== undefined && !isReported && !equalBytes(head.root, tree.root())) {
        isReported = true;
        const expected = `root ${toHex(head.root)} of ${head.size} leaves, which make ${toHex(tree.root())}`;
        ctx.findings.add('public_root_differs', head.where, expected);
      }
    }
    step(hashes.length);
  }
  for (const tile of tree.partial()) await reader.check(tile);
  return found;
}

/** The leaf hashes of one tile; null when bundle and tile are both lost. */
async function leavesOf(
  ctx: SnapshotContext,
  reader: PublicTiles,
  tree: GrowingTree,
  heads: readonly SignedHead[],
  start: number,
  size: number,
  each: (entry: Uint8Array | null, leafIndex: number) => void,
): Promise<Uint8Array[] | null> {
  const index = start / TILE_WIDTH;
  const width = tileWidth(0, index, size);
  const path = entriesPath(index, width);
  const bundle = await ctx.files.read(path);
  const entries = bundle === null ? [] : entriesIn(bundle);
  const rows = Array.from({ length: width }, (_, i) => {
    const entry = entries[i];
    return entry === undefined ? null : leafHash(nativeSha256, entry);
  });
  const signed = heads.filter((one) => one.size > start && one.size <= start + width).at(-1);
  const resolved = resolveTile({
    rows,
    stored: await reader.tile(0, index),
    parent: await reader.parentOf(index),
    isSigned: (hashes) =>
      signed === undefined
        ? null
        : equalBytes(tree.rootWith(hashes.slice(0, signed.size - start)), signed.root),
    isSound: () => false,
  });
  if (bundle === null) {
    ctx.findings.add('bundle_missing', path, `an entry bundle of ${width} entries`);
  } else if (resolved.wrongRows.size > 0 || entries.length !== width) {
    const first = Math.min(...resolved.wrongRows, entries.length);
    const expected = `entries that are the leaves of the log, the first that is not is ${start + first}`;
    ctx.findings.add('bundle_altered', path, expected);
  }
  for (let place = 0; place < width; place += 1) {
    const isRight = !resolved.wrongRows.has(place);
    each((isRight ? entries[place] : null) ?? null, start + place);
  }
  return resolved.hashes;
}

/** The entries of a bundle before the first damage. */
export function entriesIn(bundle: Uint8Array): Uint8Array[] {
  try {
    return decodeEntryBundle(bundle);
  } catch {
    return [];
  }
}

function collect(found: PublicLog, bytes: Uint8Array, leafIndex: number): void {
  // Skips proofs, nearly all entries, without parsing them.
  if (Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length).includes('"type":"proof"')) {
    found.proofs += 1;
    return;
  }
  const entry = readEntry(bytes);
  if (entry?.type === 'key') found.keys.push({ leafIndex, entry });
  if (entry?.type !== 'status') return;
  const ofProof = found.revocations.get(entry.proof_id) ?? [];
  found.revocations.set(entry.proof_id, ofProof);
  ofProof.push({
    leafIndex,
    kind: entry.artifact_kind,
    at: parseTime(entry.time),
    reasonHash: entry.reason_hash,
  });
}

/** The tile files of a log of one size. */
class PublicTiles {
  private above: { index: number; hashes: Uint8Array | null } | null = null;

  constructor(
    private readonly ctx: SnapshotContext,
    private readonly size: number,
  ) {}

  tile(level: number, index: number): Promise<Uint8Array | null> {
    return this.ctx.files.read(tilePath(level, index, tileWidth(level, index, this.size)));
  }

  /** The hash of a full tile in the tile above; null for a partial tile. */
  async parentOf(index: number): Promise<Uint8Array | null> {
    if (tileWidth(0, index, this.size) < TILE_WIDTH) return null;
    const above = Math.floor(index / TILE_WIDTH);
    if (this.above?.index !== above)
      this.above = { index: above, hashes: await this.tile(1, above) };
    const at = (index % TILE_WIDTH) * 32;
    const hash = this.above.hashes?.subarray(at, at + 32);
    return hash?.length === 32 ? hash : null;
  }

  async check({ level, index, hashes }: GrownTile): Promise<void> {
    const path = tilePath(level, index, hashes.length / 32);
    const stored = await this.ctx.files.read(path);
    if (stored === null) {
      this.ctx.findings.add('public_tile_missing', path, `${hashes.length / 32} hashes`);
      return;
    }
    const at =
      firstDifference(stored, hashes) ?? (stored.length === hashes.length ? null : hashes.length);
    if (at === null) return;
    const expected = `${toHex(hashes.subarray(at, at + 32)) || 'its end'} at offset ${at}`;
    this.ctx.findings.add('public_tile_altered', path, expected);
  }
}
