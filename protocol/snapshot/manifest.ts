import * as z from 'zod';
import { fromUtf8, utf8 } from '../bytes.js';
import { canonicalize, parseStrict } from '../json.js';
import { openCheckpointNote, type Checkpoint } from '../checkpoint.js';
import type { Ed25519Verify } from '../ed25519.js';
import { openNote, signNote, type NoteSigner, type Vkey } from '../note.js';
import { hashSchema, logIndexSchema, merkleHashSchema, timeSchema } from '../schemas/primitives.js';
import { parseTime } from '../time.js';
import { malformed } from './malformed.js';
import type { SnapshotTrust } from './trust.js';

export const SNAPSHOT_SCHEMA = 'svc.public_verification.snapshot/1.0';
export const MANIFEST_PATH = 'lookup/manifest';
export const CHECKPOINT_PATH = 'checkpoint';
/** The newest checkpoint with the quorum of its log's witnesses; absent without witnesses. */
export const COSIGNED_PATH = 'cosigned-checkpoint';

/** Path of an immutable file, relative to the snapshot's root. */
export function segmentPath(name: string): string {
  return `lookup/segments/${name}`;
}

const countSchema = z.int().positive();
const idSchema = z.string().regex(/^[0-9a-f]{32}$/, 'expected 16 bytes in hex');

/** One index segment. `kind` separates lookups by different ids; a reader ignores unknown kinds. */
export const indexPartPinSchema = z.strictObject({
  kind: z.string().min(1).max(64),
  sha256: hashSchema,
  bytes: countSchema,
  resident_bytes: countSchema,
  resident_sha256: hashSchema,
  entries: countSchema,
  files: countSchema,
  least: idSchema,
  greatest: idSchema,
  first_leaf: logIndexSchema,
  last_leaf: logIndexSchema,
});
export type IndexPartPin = z.infer<typeof indexPartPinSchema>;

/** Index segments by proof id. */
export const PROOF_PARTS = 'proof';
/** Index segments by the first 16 bytes of the SHA-256 of a share token (share.ts). */
export const SHARE_PARTS = 'share';
/**
 * Index segments by package id without its prefix; their records (record.ts) have only the kind
 * `trust`.
 */
export const PACKAGE_PARTS = 'package';

export const manifestSchema = z.strictObject({
  schema_version: z.literal(SNAPSHOT_SCHEMA),
  /** Increases with every signed manifest. */
  generation: countSchema,
  issued_at: timeSchema,
  /** After this time the snapshot must not assert validity. */
  valid_until: timeSchema,
  tree_size: countSchema,
  root: merkleHashSchema,
  /** The signed log checkpoint with that size and root, as a note. */
  checkpoint: z.string(),
  /** Number of leaves that are proofs. */
  proofs: logIndexSchema,
  /** Number of recent proofs that generic lookups resolve. */
  window: logIndexSchema,
  /** The snapshot includes verdicts on single leaves up to this id; only the publisher reads it. */
  verdict_cursor: logIndexSchema,
  /** The AEP keys and their validity, ready to serve (keys.ts). */
  keys: z.strictObject({ sha256: hashSchema, bytes: countSchema }),
  /** Oldest first: for the same id a later segment overrides an earlier one. */
  index_parts: z.array(indexPartPinSchema),
});
export type Manifest = z.infer<typeof manifestSchema>;

/** Signs a manifest: a note of the schema line and one line of canonical JSON. */
export function signManifest(manifest: Manifest, signer: NoteSigner): Uint8Array {
  return utf8(signNote(manifestText(manifest), signer));
}

function manifestText(manifest: Manifest): string {
  return `${SNAPSHOT_SCHEMA}\n${canonicalize(manifest)}\n`;
}

export interface OpenedManifest {
  manifest: Manifest;
  /** The pinned keys that signed the manifest and its checkpoint. */
  signedBy: { log: Vkey; snapshot: Vkey };
  checkpoint: Checkpoint;
  issuedAt: number;
  validUntil: number;
}

/**
 * Opens a manifest and its checkpoint under the pinned keys, whose name is the log's origin. Throws
 * the errors of `openNote` and `openCheckpoint`, and `malformed_snapshot` for a text that {@link
 * signManifest} would not sign. Does not check whether the manifest is expired or outdated.
 */
export function openManifest(
  verify: Ed25519Verify,
  note: Uint8Array,
  trust: SnapshotTrust,
): OpenedManifest {
  const { text, key: snapshotKey } = openNote(fromUtf8(note), trust.snapshot, verify);
  const manifest = parseManifest(text);
  const { checkpoint, key: logKey } = openCheckpointNote(
    manifest.checkpoint,
    trust.log,
    trust.log[0].name,
    verify,
  );
  const issuedAt = parseTime(manifest.issued_at);
  const validUntil = parseTime(manifest.valid_until);
  const checkpointLines = manifest.checkpoint.split('\n');
  if (checkpoint.size !== manifest.tree_size || checkpointLines[2] !== manifest.root) {
    throw malformed('the manifest states another tree than the checkpoint in it');
  }
  if (validUntil <= issuedAt) throw malformed('the manifest ends before it begins');
  const signedBy = { log: logKey, snapshot: snapshotKey };
  return { manifest, signedBy, checkpoint, issuedAt, validUntil };
}

function parseManifest(text: string): Manifest {
  const [schema, json = ''] = text.split('\n');
  if (schema !== SNAPSHOT_SCHEMA) throw malformed(`not a manifest of ${SNAPSHOT_SCHEMA}`);
  let manifest: Manifest;
  try {
    manifest = manifestSchema.parse(parseStrict(utf8(json)));
  } catch (cause) {
    throw malformed('not a snapshot manifest', cause);
  }
  if (manifestText(manifest) !== text) throw malformed('the manifest is not in its canonical form');
  const { proofs, tree_size: treeSize } = manifest;
  if (proofs > treeSize) throw malformed('the manifest states more proofs than leaves');
  return manifest;
}
