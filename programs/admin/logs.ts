import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { equalBytes, fromUtf8 } from '#protocol/bytes';
import { openCheckpointNote, type Checkpoint } from '#protocol/checkpoint';
import { readEntry } from '#protocol/entries';
import { HASH_BYTES } from '#protocol/merkle';
import type { LogEntry } from '#protocol/schemas/log-entry';
import { CHECKPOINT_PATH } from '#protocol/snapshot/location';
import { pinKeys, type PinnedKeys } from '#protocol/snapshot/trust';
import { decodeEntryBundle, entriesPath, TILE_WIDTH, tilePath, tileWidth } from '#protocol/tiles';
import { FatalPublishError } from '#publisher/errors';
import { mismatch, VerifiedTree } from '#publisher/plan/tree';
import { nativeSha256, nativeVerify } from '#runtime/crypto/node';
import { OperatorError } from '#runtime/process/operator-error';
import type { Pool } from '#sql/db/transaction';
import { endLog } from '#sql/log/checkpoints';
import { readTile, treeSize } from '#sql/log/log';
import { pinning } from '../trust.js';
import { confirmOption, requireConfirmed, words, type AddCommand } from './command.js';

export function addLogCommands(add: AddCommand): void {
  add(
    'log lost <snapshot_directory>',
    'List published leaves that the database lacks, after a restore or failover; exit code 1 if any',
    '/srv/public --vkey log.example.org/2026+0a1b2c3d+AR…',
    async ({ database }, directory: string, { vkey }: { vkey: string }) => {
      const sql = await database();
      const keys = pinning('--vkey', () => pinKeys(nativeSha256, vkey.split(',')));
      const found = await compareWithPublished(sql, directory, keys);
      return { document: found, failed: found.lost.length > 0 };
    },
  ).requiredOption(
    '--vkey <LOG_VKEY>',
    "the log's verifier key, or several separated by commas: the only trusted input",
  );
  add(
    'log end <LOG_ORIGIN>',
    'Retire the log of this database permanently, after a publisher recorded the loss of published leaves; the remaining leaves continue under another LOG_ORIGIN',
    'log.example.org/2026 --reason "17 leaves lost with db1 on 2026-11-22" --confirm log.example.org/2026',
    async ({ act }, origin: string, options: { reason: string; confirm: string }) => {
      requireConfirmed(options.confirm, origin);
      const reason = words(options.reason, 'the reason', 512);
      const signed = await act((tx) => endLog(tx, origin, reason));
      return { document: { origin, ended: true, last_checkpoint_known: signed } };
    },
  )
    .requiredOption('--reason <words>', 'what was lost, and when; recorded in the audit')
    .requiredOption(...confirmOption('LOG_ORIGIN'));
}

interface LostLeaf {
  leaf_index: number;
  type: LogEntry['type'];
  /** Present for proofs and their revocations. */
  proof_id?: string;
  time: string;
}

/** Result of comparing a published log with the database that it came from. */
interface Comparison {
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
 * Finds the leaves of a published log that the database lacks. The files are verified against the
 * signed checkpoint, so the published log is exactly what was signed.
 */
async function compareWithPublished(
  sql: Pool,
  directory: string,
  keys: PinnedKeys,
): Promise<Comparison> {
  const read = (path: string): Promise<Buffer> => readFile(join(directory, path));
  const checkpoint = await publishedCheckpoint(read, keys);
  const { origin, size } = checkpoint;
  try {
    const tree = await VerifiedTree.open(size, {
      tile: (level, index) => read(tilePath(level, index, tileWidth(level, index, size))),
      entries: (from) => entriesFrom(read, from, size),
    });
    if (!equalBytes(tree.head.root, checkpoint.root)) throw mismatch('the tiles have another root');
    const inDatabase = await treeSize(sql);
    const common = await commonLeaves(sql, tree, Math.min(inDatabase, size));
    const lost: LostLeaf[] = [];
    for (let index = Math.floor(common / TILE_WIDTH); index * TILE_WIDTH < size; index++) {
      const first = index * TILE_WIDTH;
      const entries = await tree.entries(first, Math.min(first + TILE_WIDTH, size));
      entries.forEach((bytes, place) => {
        if (first + place >= common) lost.push(lostLeaf(first + place, bytes));
      });
    }
    return { origin, published: size, common, only_in_database: inDatabase - common, lost };
  } catch (cause) {
    if (!(cause instanceof FatalPublishError)) throw cause;
    throw new OperatorError(
      `the files in ${directory} do not match their checkpoint: find the bad ones with npm run fsck -- --only snapshot, and use a mirror's copy (${cause.message})`,
      { cause },
    );
  }
}

/** The entries of the published bundle whose first leaf is `first`. */
async function entriesFrom(
  read: (path: string) => Promise<Buffer>,
  first: number,
  size: number,
): Promise<Uint8Array[]> {
  const index = first / TILE_WIDTH;
  return decodeEntryBundle(await read(entriesPath(index, tileWidth(0, index, size))));
}

async function publishedCheckpoint(
  read: (path: string) => Promise<Buffer>,
  keys: PinnedKeys,
): Promise<Checkpoint> {
  try {
    const note = fromUtf8(await read(CHECKPOINT_PATH));
    return openCheckpointNote(note, keys, keys[0].name, nativeVerify).checkpoint;
  } catch (cause) {
    const { message } = cause as Error;
    throw new OperatorError(`no checkpoint signed by these keys was found: ${message}`, { cause });
  }
}

/** Binary search: leaves commit to random ids, so logs that have diverged never agree again. */
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
  return 'proof_id' in entry
    ? { leaf_index: leafIndex, type, proof_id: entry.proof_id, time }
    : { leaf_index: leafIndex, type, time };
}
