import { equalBytes, fromUtf8 } from '#protocol/bytes';
import { openCheckpointNote, type Checkpoint } from '#protocol/checkpoint';
import { HASH_BYTES } from '#protocol/merkle';
import { CHECKPOINT_PATH } from '#protocol/snapshot/location';
import { pinKeys } from '#protocol/snapshot/trust';
import { decodeEntryBundle, entriesPath, TILE_WIDTH, tilePath, tileWidth } from '#protocol/tiles';
import { FatalPublishError, mismatch } from '#publisher/errors';
import { VerifiedTree } from '#publisher/plan/tree';
import { splitVkeys } from '#runtime/config';
import { nativeSha256, nativeVerify } from '#runtime/crypto/node';
import { OperatorError } from '#runtime/process/operator-error';
import type { Pool } from '#sql/db/transaction';
import { readTile } from '#sql/log/log';
import { snapshotSourceOf } from '#api/public/snapshot/remote-source';
import { pinning } from '../trust.js';

export interface PublishedLog {
  origin: string;
  /** Reads the log under the checkpoint, and verifies every tile and entry. */
  tree: VerifiedTree;
}

/**
 * Runs `work` on the log that is published in a directory, in a bucket or below a URL, and its checkpoint.
 *
 * @param vkeys the pinned vkeys of the log, separated by commas: the only trusted input
 * @throws OperatorError when a file does not match the checkpoint
 */
export async function withPublishedLog<T>(
  place: string,
  vkeys: string,
  work: (published: PublishedLog) => Promise<T>,
): Promise<T> {
  const keys = pinning('--vkey', () => pinKeys(nativeSha256, splitVkeys(vkeys)));
  const source = await snapshotSourceOf(place);
  const read = async (path: string): Promise<Uint8Array> => {
    const bytes = await source.logFile(path, true);
    if (bytes === null) throw new OperatorError(`${place} has no file ${path}`);
    return bytes;
  };
  try {
    const { origin, size, root } = await publishedCheckpoint(read, keys);
    const tree = await VerifiedTree.open(size, {
      tile: (level, index) => read(tilePath(level, index, tileWidth(level, index, size))),
      entries: async (from) => {
        const index = Math.floor(from / TILE_WIDTH);
        const bundle = await read(entriesPath(index, tileWidth(0, index, size)));
        return decodeEntryBundle(bundle).slice(from % TILE_WIDTH);
      },
    });
    if (!equalBytes(tree.head.root, root)) {
      throw mismatch('the root of the published tiles differs from the root in the checkpoint');
    }
    return await work({ origin, tree });
  } catch (cause) {
    if (!(cause instanceof FatalPublishError)) throw cause;
    throw new OperatorError(
      `the files in ${place} do not match their checkpoint: find the damaged files with npm run fsck -- --only snapshot, and use a mirror's copy (${cause.message})`,
      { cause },
    );
  } finally {
    source.close();
  }
}

async function publishedCheckpoint(
  read: (path: string) => Promise<Uint8Array>,
  keys: ReturnType<typeof pinKeys>,
): Promise<Checkpoint> {
  try {
    const note = fromUtf8(await read(CHECKPOINT_PATH));
    return openCheckpointNote(note, keys, keys[0].name, nativeVerify).checkpoint;
  } catch (cause) {
    const { message } = cause as Error;
    throw new OperatorError(`no checkpoint signed by these keys was found: ${message}`, { cause });
  }
}

/** Yields the verified entries of the published log from index `from` on, one level-0 tile at a time. */
export async function* entriesFrom(tree: VerifiedTree, from: number) {
  const { size } = tree.head;
  for (let first = from; first < size;) {
    const end = Math.min(first - (first % TILE_WIDTH) + TILE_WIDTH, size);
    yield { first, entries: await tree.entries(first, end) };
    first = end;
  }
}

/**
 * Counts the leaves at the start of the log, at most `most`, in which database and published log agree.
 * Searches by bisection: leaves contain random ids, so logs that have diverged never agree again.
 */
export async function commonLeaves(sql: Pool, tree: VerifiedTree, most: number): Promise<number> {
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
