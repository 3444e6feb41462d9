import * as z from 'zod';
import { fromHex, toHex, utf8 } from '../bytes.js';
import { type Checkpoint, openCheckpointNote, parseTlogProof } from '../checkpoint.js';
import type { Ed25519Verify } from '../ed25519.js';
import { entryBytes } from '../entries.js';
import { ProtocolError } from '../errors.js';
import type { Sha256 } from '../hash.js';
import { canonicalize, parseStrict } from '../json.js';
import type { PageId } from '../map/page.js';
import { leafHash, verifyInclusion } from '../merkle.js';
import type { Vkey } from '../note.js';
import { snapshotEntrySchema, type SnapshotEntry } from '../schemas/log-entry.js';
import { hashSchema, logIndexSchema } from '../schemas/primitives.js';
import { parseTime } from '../time.js';
import type { PinnedKeys } from './trust.js';

/**
 * The error of every reader for bytes that differ from those that the log commits to. A
 * lookup then has no result, and must not return "not found".
 */
export const malformed = (message: string, cause?: unknown): ProtocolError =>
  new ProtocolError('malformed_snapshot', message, { cause });

/** The newest signed checkpoint of the log. */
export const CHECKPOINT_PATH = 'checkpoint';
/** The newest checkpoint with the cosignatures of a quorum of witnesses. */
export const COSIGNED_PATH = 'cosigned-checkpoint';
/** The only file of a snapshot, besides the checkpoint, that newer snapshots replace. */
export const LOCATION_PATH = 'lookup/snapshot';
export const LOCATION_SCHEMA = 'svc.registry.snapshot_location/1.0';

/** Path of a page of a map, relative to the snapshot's root. */
export function pagePath({ digest }: Pick<PageId, 'digest'>): string {
  const name = toHex(digest);
  return `map/${name.slice(0, 2)}/${name}`;
}

const pageSchema = z.strictObject({ level: z.int().min(0).max(255), digest: hashSchema });

/** Where the newest snapshot is. Unsigned: the log covers the snapshot entry, whose map roots cover the pages. */
export const locationSchema = z.strictObject({
  schema_version: z.literal(LOCATION_SCHEMA),
  snapshot: snapshotEntrySchema,
  /** C2SP tlog-proof of the snapshot entry, with the signed checkpoint. */
  tlog_proof: z.string(),
  /** The head pages of the map of proofs and of the map of shares; null for an empty map. */
  map: pageSchema.nullable(),
  shares: pageSchema.nullable(),
  /** The last change of a share token or package in `shares`; only the publisher reads it. */
  share_change: logIndexSchema,
});
export type SnapshotLocation = z.infer<typeof locationSchema>;

export function encodeLocation(location: SnapshotLocation): Uint8Array {
  return utf8(canonicalize(location));
}

/** The page that a location names. */
export const pageIdOf = (page: SnapshotLocation['map']): PageId | null =>
  page && { level: page.level, digest: fromHex(page.digest) };

export interface OpenedLocation {
  location: SnapshotLocation;
  snapshot: SnapshotEntry;
  /** Leaf index of the snapshot entry: the generation of the snapshot. */
  index: number;
  checkpoint: Checkpoint;
  /** The pinned key that signed the checkpoint. */
  signedBy: Vkey;
  validUntil: number;
}

/**
 * Opens a location under the pinned keys of the log of shard 0. Throws the errors of `parseTlogProof` and
 * `openCheckpointNote`, and `malformed_snapshot` for bytes that are not a location, a snapshot entry that the
 * checkpoint does not cover, or a snapshot entry of another log. Does not check whether the snapshot has expired.
 */
export function openLocation(
  crypto: { sha256: Sha256; verify: Ed25519Verify },
  bytes: Uint8Array,
  log: PinnedKeys,
): OpenedLocation {
  const location = parseLocation(bytes);
  const { snapshot } = location;
  const { index, path, checkpoint: note } = parseTlogProof(location.tlog_proof);
  const { checkpoint, key: signedBy } = openCheckpointNote(note, log, log[0].name, crypto.verify);
  const hash = leafHash(crypto.sha256, entryBytes(snapshot));
  const { size, root } = checkpoint;
  if (!verifyInclusion(crypto.sha256, { index, size, leafHash: hash, path, root })) {
    throw malformed('the snapshot entry is not in the tree of the checkpoint');
  }
  const [own] = snapshot.logs;
  if (own?.shard !== 0 || own.origin !== checkpoint.origin || own.size > index) {
    throw malformed('the snapshot entry does not begin with the tree of its own log');
  }
  const validUntil = parseTime(snapshot.valid_until);
  return { location, snapshot, index, checkpoint, signedBy, validUntil };
}

/** The checkpoint note in a location, unverified. Throws like {@link openLocation}. */
export function noteIn(bytes: Uint8Array): string {
  return parseTlogProof(parseLocation(bytes).tlog_proof).checkpoint;
}

function parseLocation(bytes: Uint8Array): SnapshotLocation {
  try {
    return locationSchema.parse(parseStrict(bytes));
  } catch (cause) {
    throw malformed('the bytes are not the location of a snapshot', cause);
  }
}
