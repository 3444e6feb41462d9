import {
  aepBytes,
  AEP_PAYLOAD_TYPE,
  buildProofRecord,
  laneOf,
  proofRecordHash,
  type ProofRecordInput,
} from '#protocol/aep';
import { toBase64, toBase64Url } from '#protocol/bytes';
import { canonicalBytes, canonicalize } from '#protocol/canonical-json';
import { formatCheckpoint } from '#protocol/checkpoint';
import { pae } from '#protocol/dsse';
import { hashHex } from '#protocol/hash';
import type { JsonValue } from '#protocol/json';
import { jwkThumbprint } from '#protocol/keys';
import { inclusionPath, leafHash, rootOf } from '#protocol/merkle';
import { keyId, signNote } from '#protocol/note';
import type { Aep } from '#protocol/schemas/aep';
import type { ProofEntry } from '#protocol/schemas/log-entry';
import type { ProofExport } from '#protocol/schemas/proof-export';
import type { ProofRecord } from '#protocol/schemas/proof-record';
import { formatTlogProof } from '#protocol/tlog-proof';
import { sha256 } from '../leaves.js';
import {
  admitted,
  aepKey,
  checkpoint,
  entries,
  exportOf,
  leaves,
  ORIGIN,
  testKey,
} from '../worked-log.js';

/** The key that signs the worked log's checkpoints, and one that is nobody's business there. */
export const logKey = testKey(1);
export const strangerKey = testKey(2);

/** One place where something else is put in than what would follow. */
export interface Twist {
  aep?: Aep;
  /** Bytes that are signed and hashed instead of the AEP's own. */
  payload?: Uint8Array;
  /** Of the payload; made by the AEP key over its pre-authentication encoding unless given. */
  signature?: Uint8Array;
  publicKey?: Uint8Array;
  record?: (record: ProofRecord) => ProofRecord;
  entry?: (entry: ProofEntry) => ProofEntry;
}

/**
 * A whole export around one twist, in which everything after it follows from it: hashes, proof record,
 * log entry, a tree with that entry and a checkpoint of the tree signed by the log. What refuses it
 * is the one check that looks at the twist.
 */
export function sealed(twist: Twist): ProofExport {
  const publicKey = twist.publicKey ?? aepKey.publicKey;
  const key_id = jwkThumbprint(sha256, publicKey);
  const aep: Aep = { ...(twist.aep ?? admitted.aep), key_id };
  const payload = twist.payload ?? aepBytes(aep);
  const signature = twist.signature ?? aepKey.sign(pae(AEP_PAYLOAD_TYPE, payload));
  const facts: ProofRecordInput = {
    proof_id: aep.proof_id,
    aep: payload,
    signature,
    key_id,
    request_hash: aep.request_hash,
    effect: aep.decision.effect,
    lane: laneOf(aep.subject),
  };
  const record = (twist.record ?? same)(buildProofRecord(sha256, facts));
  const genuine = exportOf(admitted);
  const entry = (twist.entry ?? same)({
    ...genuine.entry,
    proof_id: aep.proof_id,
    aep_hash: hashHex(sha256, payload),
    proof_record_hash: proofRecordHash(sha256, record),
    time: aep.accepted_at,
  });
  return {
    ...genuine,
    proof_id: aep.proof_id,
    aep,
    envelope: record.envelope,
    proof_record: record,
    entry,
    inclusion: logged(canonicalBytes(entry)),
    keys: [{ key_id, public_key: toBase64Url(publicKey) }],
    request_hash: record.request_hash,
    response_hash: record.response_hash,
  };
}

/** The worked log with another leaf in place of the admission, and a checkpoint of its own. */
function logged(entry: Uint8Array): ProofExport['inclusion'] {
  const { leafIndex } = admitted;
  const hashes = entries.with(leafIndex, entry).map((one) => leafHash(sha256, one));
  return inclusionIn(hashes, leafIndex);
}

/** The inclusion of a leaf in a tree of these, with a checkpoint of it signed by the log. */
export function inclusionIn(
  hashes: readonly Uint8Array[],
  leafIndex: number,
): ProofExport['inclusion'] {
  return {
    leaf_index: leafIndex,
    tree_size: hashes.length,
    path: inclusionPath(sha256, hashes, leafIndex).map(toBase64),
    checkpoint: signedHead(hashes),
  };
}

/** A checkpoint of these leaves, signed by the log unless told otherwise. */
export function signedHead(
  leaves: readonly Uint8Array[],
  { origin = ORIGIN, name = ORIGIN, key = logKey } = {},
): string {
  const text = formatCheckpoint({ origin, size: leaves.length, root: rootOf(sha256, leaves) });
  return signedText(text, { name, key });
}

/** A note of any text, signed by the log unless told otherwise. */
export function signedText(text: string, { name = ORIGIN, key = logKey } = {}): string {
  return signNote(text, { name, keyHash: keyId(sha256, name, key.publicKey), sign: key.sign });
}

/** The tlog-proof of a leaf of the worked log, under its checkpoint unless told otherwise. */
export const tlogProofOf = (index: number, note = checkpoint): string =>
  formatTlogProof({ index, path: inclusionPath(sha256, leaves, index), checkpoint: note });

export const textOf = (document: unknown): string => canonicalize(document as JsonValue);

/** With a text in place of another, which has to be there just once. */
export function replaced(text: string, from: string, to: string): string {
  if (text.split(from).length !== 2) throw new Error(`not there just once: ${from}`);
  return text.replace(from, () => to);
}

/** The genuine export with the member at a place, by its steps, changed. */
export function changed(path: readonly (string | number)[], change: (value: never) => unknown) {
  const copy = structuredClone(exportOf(admitted)) as unknown as Record<string | number, unknown>;
  const parent = path
    .slice(0, -1)
    .reduce((at, step) => at[step] as Record<string | number, unknown>, copy);
  const last = path.at(-1)!;
  parent[last] = change(parent[last] as never);
  return copy;
}

function same<T>(value: T): T {
  return value;
}
