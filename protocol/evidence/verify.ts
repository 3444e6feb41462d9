import { fromBase64, fromHex } from '../bytes.js';
import { type Checkpoint, parseTlogProof } from '../checkpoint.js';
import { isSince1970, parseEntry } from '../entries.js';
import { ProtocolError } from '../errors.js';
import type { Sha256 } from '../hash.js';
import { canonicalBytes } from '../json.js';
import { checkMapPath, valueHash } from '../map/nodes.js';
import type { MapValue } from '../map/page.js';
import { leafHash, verifyInclusion } from '../merkle.js';
import type { Vkey } from '../note.js';
import { valueOf, type TextOrBytes } from '../offline/read.js';
import { openPinned, type LogPin } from '../offline/trust.js';
import { MAX_SNAPSHOT_MS, type SnapshotEntry } from '../schemas/log-entry.js';
import { shardOf } from '../state/record.js';
import { parseTime } from '../time.js';
import { checkQuorum } from '../tlog-policy.js';
import type { VerifyCrypto } from '../verify.js';
import { namedIdentifier } from './build.js';
import { evidenceSchema, type Evidence, type EvidenceLookup } from './document.js';
import { lookupsOf, type FoundRecords, type MapQuery } from './lookups.js';

/** How far the time of a log entry may be ahead of the reader's clock, in milliseconds. */
export const MAX_AHEAD_MS = 60_000;

export interface EvidenceOptions {
  /** The identifier of the lookup, or its share token, which no document contains. */
  identifier: string;
  /** The pinned log of shard 0. */
  log: LogPin;
  /** Milliseconds since 1970. */
  now: number;
  /** Limit on the age in milliseconds, in addition to the limit that applies to every snapshot. */
  maxAgeMs?: number | undefined;
}

/** The facts that evidence proves, at the `time` of its snapshot. */
export interface ProvedState {
  identifier: string;
  found: FoundRecords;
  snapshot: SnapshotEntry;
  /** Leaf index of the snapshot entry. */
  index: number;
  checkpoint: Checkpoint;
  /** The pinned key that signed the checkpoint. */
  key: Vkey;
  /** Names of the policy's witnesses that cosigned the checkpoint; empty without a policy. */
  witnesses: string[];
  ageMs: number;
  /** Why the state is too old for answers other than `REVOKED`; null while it supports every answer. */
  outdated: 'evidence_expired' | 'evidence_too_old' | null;
}

/**
 * Verifies evidence (spec/snapshot.md, Evidence). An attacker may supply the whole document. A document as text or
 * bytes is parsed strictly.
 *
 * Outdated evidence does not throw: it supports `REVOKED`, and shows the state at its time.
 *
 * @throws ProtocolError of the first failed check: `malformed_evidence`, `wrong_identifier`; the errors
 *   of a tlog-proof, a checkpoint and a quorum; `malformed_entry`, `not_in_tree`, `wrong_origin`;
 *   `malformed_map_path`, `wrong_map_root`, `malformed_record`, `uncovered_record`;
 *   `evidence_ahead`
 */
export function proveState(
  crypto: VerifyCrypto,
  evidence: TextOrBytes | object,
  { identifier, log, now, maxAgeMs = Infinity }: EvidenceOptions,
): ProvedState {
  const { sha256 } = crypto;
  const document = parseEvidence(evidence);
  if (document.identifier !== namedIdentifier(sha256, identifier)) {
    throw new ProtocolError('wrong_identifier', 'the evidence is about another identifier', {
      pointer: '/identifier',
    });
  }
  const { snapshot, ...place } = openSnapshot(crypto, document, log);
  const found = checkLookups(sha256, document.lookups, identifier, snapshot);
  requireCovered(found, snapshot);
  // The negated comparison also rejects NaN.
  const time = parseTime(snapshot.time);
  if (!(time <= now + MAX_AHEAD_MS)) {
    const message = `the snapshot of ${snapshot.time} is ahead of the clock of this reader`;
    throw new ProtocolError('evidence_ahead', message);
  }
  const ageMs = Math.max(0, now - oldestTime(found, snapshot));
  const isYoung = ageMs < MAX_SNAPSHOT_MS && ageMs <= maxAgeMs;
  const isValid = now < parseTime(snapshot.valid_until);
  const outdated = !isValid ? 'evidence_expired' : isYoung ? null : 'evidence_too_old';
  return { identifier, found, snapshot, ...place, ageMs, outdated };
}

export function parseEvidence(evidence: TextOrBytes | object): Evidence {
  try {
    return evidenceSchema.parse(valueOf(evidence));
  } catch (cause) {
    throw new ProtocolError('malformed_evidence', 'not an evidence document', { cause });
  }
}

/** Opens the snapshot entry: it must be in the pinned log, and cover only leaves before itself. */
function openSnapshot(
  { sha256, verify }: VerifyCrypto,
  document: Evidence,
  log: LogPin,
): Pick<ProvedState, 'snapshot' | 'index' | 'checkpoint' | 'key' | 'witnesses'> {
  const { index, path, checkpoint: note } = parseTlogProof(document.tlog_proof);
  const { checkpoint, key } = openPinned(note, log, verify);
  const bytes = canonicalBytes(document.snapshot);
  const snapshot = parseEntry(bytes);
  if (snapshot.type !== 'snapshot' || !isSince1970(snapshot)) {
    throw new ProtocolError('malformed_entry', 'the entry is not a snapshot entry');
  }
  const { size, root } = checkpoint;
  if (!verifyInclusion(sha256, { index, size, leafHash: leafHash(sha256, bytes), path, root })) {
    throw new ProtocolError('not_in_tree', 'the path does not lead to the checkpoint');
  }
  const [first] = snapshot.logs;
  if (first?.shard !== 0 || first.origin !== log.origin) {
    throw new ProtocolError('wrong_origin', 'the log of shard 0 is not the pinned log');
  }
  if (index < first.size) {
    throw new ProtocolError(
      'malformed_entry',
      `the snapshot entry at ${index} covers itself or a later leaf`,
    );
  }
  const cosigned = log.policy === null ? [] : checkQuorum(note, log.policy, verify).cosigned;
  const witnesses = cosigned.map(({ witness }) => witness.name);
  return { snapshot, index, checkpoint, key, witnesses };
}

/** Checks the document's map paths, and that they belong to the keys that the reader derives. */
function checkLookups(
  sha256: Sha256,
  lookups: readonly EvidenceLookup[],
  identifier: string,
  snapshot: SnapshotEntry,
): FoundRecords {
  const queries = lookupsOf(sha256, identifier);
  let step = queries.next();
  for (const lookup of lookups) {
    if (step.done === true) throw malformed('it has a lookup that the answer does not need');
    step = queries.next(checkLookup(sha256, lookup, step.value, snapshot));
  }
  if (step.done !== true) throw malformed('a lookup is missing');
  return step.value;
}

function checkLookup(
  sha256: Sha256,
  lookup: EvidenceLookup,
  { map, key }: MapQuery,
  snapshot: SnapshotEntry,
): MapValue | null {
  const claim = { root: fromBase64(snapshot[map]), key, path: fromBase64(lookup.path) };
  if ('leaf' in lookup) {
    const { leaf } = lookup;
    const end = leaf && { key: fromHex(leaf.key), valueHash: fromHex(leaf.value_hash) };
    if (!checkMapPath(sha256, { ...claim, end })) return null;
    throw malformed('it omits the record of a key that the map has');
  }
  const value = { record: fromBase64(lookup.record), history: fromBase64(lookup.history) };
  const end = { key, valueHash: valueHash(sha256, value.record, value.history) };
  checkMapPath(sha256, { ...claim, end });
  return value;
}

/** Rejects the record of a leaf that the snapshot does not cover: no covered entry can have created the record. */
function requireCovered({ proofs }: FoundRecords, { logs }: SnapshotEntry): void {
  for (const [id, found] of proofs) {
    const log = logs.find(({ shard }) => shard === shardOf(id));
    if (found !== null && !(log !== undefined && found.proof.leafIndex < log.size)) {
      throw new ProtocolError('uncovered_record', `the snapshot does not cover the proof ${id}`);
    }
  }
}

/** The earliest of the snapshot's time and the times of the expiry scans of the looked-up logs. */
function oldestTime({ proofs }: FoundRecords, { time, logs }: SnapshotEntry): number {
  const shards = new Set([...proofs.keys()].map(shardOf));
  const scanned = logs.filter(({ shard }) => shards.has(shard));
  return Math.min(...[time, ...scanned.map((log) => log.expired_through)].map(parseTime));
}

const malformed = (problem: string): ProtocolError =>
  new ProtocolError('malformed_evidence', `the evidence is malformed: ${problem}`);
