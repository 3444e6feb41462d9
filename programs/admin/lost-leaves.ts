import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { equalBytes, fromUtf8 } from '#protocol/bytes';
import { openCheckpointNote, type Checkpoint } from '#protocol/checkpoint';
import { readEntry } from '#protocol/entries';
import { HASH_BYTES } from '#protocol/merkle';
import { CHECKPOINT_PATH } from '#protocol/snapshot/manifest';
import { pinKeys } from '#protocol/snapshot/trust';
import { decodeEntryBundle, entriesPath, TILE_WIDTH, tilePath, tileWidth } from '#protocol/tiles';
import { FatalPublishError } from '#publisher/errors';
import { VerifiedTree } from '#publisher/plan/tree';
import { nativeSha256, nativeVerify } from '#runtime/crypto/node';
import { OperatorError } from '#runtime/process/operator-error';
import type { Pool } from '#sql/db/transaction';
import { readTile, treeSize } from '#sql/log/log';

export interface LostLeaf {
  leaf_index: number;
  type: 'proof' | 'status' | 'key';
  /** For proofs and their revocations. */
  proof_id?: string;
  time: string;
}

/** Result of comparing a published log with the database that it came from. */
export interface Comparison {
  origin: string;
  /** Leaves of the published checkpoint. */
  published: number;
  /** Length of the common prefix. */
  common: number;
  /** Leaves in the database after the common prefix. */
  only_in_database: number;
  /** Published leaves that are not in the database. */
  lost: LostLeaf[];
}

/**
 * Finds the leaves of a published log that the database lacks. The files are verified up to the
 * checkpoint's signature, so their content is what was signed.
 */
export async function compareWithPublished(
  sql: Pool,
  directory: string,
  vkeys: readonly string[],
): Promise<Comparison> {
  try {
    return await compare(sql, directory, vkeys);
  } catch (cause) {
    if (!(cause instanceof FatalPublishError)) throw cause;
    throw new OperatorError(
      `the files in ${directory} do not match their checkpoint: find the bad ones with npm run fsck -- --only snapshot, and use a mirror's copy (${cause.message})`,
      { cause },
    );
  }
}

async function compare(
  sql: Pool,
  directory: string,
  vkeys: readonly string[],
): Promise<Comparison> {
  const read = (path: string): Promise<Buffer> => readFile(join(directory, path));
  const checkpoint = await publishedCheckpoint(read, vkeys);
  const tree = await VerifiedTree.open(nativeSha256, checkpoint, (level, index) =>
    read(tilePath(level, index, tileWidth(level, index, checkpoint.size))),
  );
  const inDatabase = await treeSize(sql);
  const common = await commonLeaves(sql, tree, Math.min(inDatabase, checkpoint.size));
  const lost: LostLeaf[] = [];
  for (let index = Math.floor(common / TILE_WIDTH); index * TILE_WIDTH < checkpoint.size; index++) {
    const first = index * TILE_WIDTH;
    const path = entriesPath(index, tileWidth(0, index, checkpoint.size));
    const entries = decodeEntryBundle(await read(path));
    tree.requireLeaves(first, entries, await tree.tile(0, index));
    entries.forEach((bytes, place) => {
      if (first + place >= common) lost.push(lostLeaf(first + place, bytes));
    });
  }
  return {
    origin: checkpoint.origin,
    published: checkpoint.size,
    common,
    only_in_database: inDatabase - common,
    lost,
  };
}

async function publishedCheckpoint(
  read: (path: string) => Promise<Buffer>,
  vkeys: readonly string[],
): Promise<Checkpoint> {
  const pinned = pinKeys(nativeSha256, vkeys);
  try {
    const note = fromUtf8(await read(CHECKPOINT_PATH));
    return openCheckpointNote(note, pinned, pinned[0].name, nativeVerify).checkpoint;
  } catch (cause) {
    throw new OperatorError(
      `no checkpoint signed by these keys was found:  ${(cause as Error).message}`,
      { cause },
    );
  }
}

/** Leaves commit to random ids, so logs that have diverged never agree again: binary search. */
async function commonLeaves(sql: Pool, tree: VerifiedTree, most: number): Promise<number> {
  let [same, other] = [0, Math.ceil(most / TILE_WIDTH)];
  while (same < other) {
    const middle = Math.floor((same + other) / 2);
    const leaves = Math.min(TILE_WIDTH, most - middle * TILE_WIDTH);
    if ((await commonIn(sql, tree, middle)) >= leaves) same = middle + 1;
    else other = middle;
  }
  if (same * TILE_WIDTH >= most) return most;
  return Math.min(most, same * TILE_WIDTH + (await commonIn(sql, tree, same)));
}

async function commonIn(sql: Pool, tree: VerifiedTree, index: number): Promise<number> {
  const published = await tree.tile(0, index);
  const stored = (await readTile(sql, 0, index)) ?? new Uint8Array();
  const most = Math.min(published.length, stored.length) / HASH_BYTES;
  for (let place = 0; place < most; place++) {
    const [from, to] = [place * HASH_BYTES, (place + 1) * HASH_BYTES];
    if (!equalBytes(published.subarray(from, to), stored.subarray(from, to))) return place;
  }
  return most;
}

function lostLeaf(leafIndex: number, bytes: Uint8Array): LostLeaf {
  const entry = readEntry(bytes);
  if (entry === null) throw new OperatorError(`the published leaf ${leafIndex} is not a log entry`);
  const { type, time } = entry;
  return entry.type === 'key'
    ? { leaf_index: leafIndex, type, time }
    : { leaf_index: leafIndex, type, proof_id: entry.proof_id, time };
}
