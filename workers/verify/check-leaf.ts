import { approvalAt } from '#protocol/approvals';
import { equalBytes } from '#protocol/bytes';
import { readEntry } from '#protocol/entries';
import { attempt } from '#protocol/errors';
import type { KeyedEntry } from '#protocol/keys';
import { leafHash } from '#protocol/merkle';
import { parseVkey } from '#protocol/note';
import type { Aep } from '#protocol/schemas/aep';
import type { KeyEntry } from '#protocol/schemas/log-entry';
import { ROW_CHECK_NAME } from '#protocol/schemas/verdict';
import { KeyStates, isSignedVerdict } from '#protocol/state/log-keys';
import type { Outcome } from '#protocol/status';
import {
  allPassed,
  examineProof,
  type Check,
  type ProofFindings,
  type ProofCrypto,
} from '#protocol/verify';
import { nativeSha256 } from '#runtime/crypto/node';
import { OperatorError } from '#runtime/process/operator-error';
import { type Db, pipeline } from '#sql/db/transaction';
import { endedOrigins, latestCheckpoint, type StoredCheckpoint } from '#sql/log/log';
import {
  type LeafEvidence,
  columnsUnlikeAep,
  expiriesOf,
  filedEntry,
  type SubjectColumns,
} from '#sql/log/leaf-checks';
import {
  NO_KEYS_DIGEST,
  nextKeysDigest,
  countProofs,
  keyEntries,
  keysInLog,
  type KeysOfLog,
} from '#sql/log/keys';
import type { Expiry, VerifiedPrefix } from '#sql/log/verdicts';
import type { PassContext, VerifyContext } from './context.js';

/**
 * Runs every check of one leaf on the stored bytes. Never throws.
 *
 * @param origins names of the log: the signature of a verdict entry must be for one of them; by
 *   default, the signature is not checked
 */
export function checkLeaf(
  crypto: ProofCrypto,
  leaf: LeafEvidence,
  { entries, states }: KeysOfLog,
  leafHashInTree: Uint8Array,
  origins?: readonly string[],
): ProofFindings {
  if (leaf.proof === null) {
    const entry = filedEntry(leaf);
    const isSigned =
      entry?.type !== 'verdict' ||
      origins === undefined ||
      origins.some((origin) => isSignedVerdict(crypto, origin, entry, states, leaf.leafIndex));
    return { checks: checkEntry(leaf, entry !== null && isSigned, leafHashInTree), aep: null };
  }
  if (leaf.proof.isErased) {
    // The log entry of an erased proof remains verifiable.
    const entry = readEntry(leaf.entry);
    const isOwn = entry?.type === 'proof' && entry.proof_id === leaf.filedUnder;
    return { checks: [...ERASED_CHECKS, ...checkEntry(leaf, isOwn, leafHashInTree)], aep: null };
  }
  const { approval, proofId, request, rebuilt, seed, signature, keyId } = leaf.proof;
  if (rebuilt === null || signature === null) {
    const detail = 'the rows do not form an AEP with a signature';
    return { checks: [{ name: 'aep_hash', result: 'fail', detail }], aep: null };
  }
  const found = examineProof(crypto, {
    request,
    seed,
    aep: rebuilt.bytes,
    built: rebuilt,
    signature,
    proof_id: proofId,
    entry: leaf.entry,
    leafIndex: leaf.leafIndex,
    key: states.at(keyId, leaf.leafIndex),
    approval: approvalAt(leaf.leafIndex, entries, approval),
    inclusion: { leafHashInTree },
  });
  found.checks.push(checkColumns(leaf.proof, found.aep));
  return found;
}

/** The keys of the history. Counts the proofs of each delegated key that signed one of the leaves. */
export async function keysFor(
  { crypto, sql }: Pick<VerifyContext, 'crypto'> & { sql: Db },
  leaves: readonly LeafEvidence[],
  { entries }: KeyHistory,
  origins: readonly string[] = [],
): Promise<KeysOfLog> {
  const states = new KeyStates({ ...crypto, origins }, entries);
  await countProofs(
    sql,
    states,
    leaves.flatMap(({ proof }) => proof?.keyId ?? []),
  );
  return { entries, states };
}

/**
 * The present and past origins of the log; undefined for a verifier without a key. Throws for a wrong LOG_ORIGIN, under
 * which valid verdict entries and delegations would fail.
 */
export async function logOrigins(context: PassContext): Promise<string[] | undefined> {
  const { signer, sql } = context;
  if (signer === undefined) return undefined;
  const [checkpoint, ended] = await pipeline(latestCheckpoint(sql), endedOrigins(sql));
  const keys = checkpoint === null ? await keysInLog(sql) : null;
  requireNameOfLog(signer.origin, keys ?? [], checkpoint, ended);
  return [signer.origin, ...ended];
}

/**
 * Throws if the log is retired under this name, or has other names: that of its last checkpoint, or before the first
 * checkpoint those of its log keys.
 */
export function requireNameOfLog(
  origin: string,
  keys: readonly KeyedEntry[],
  checkpoint: StoredCheckpoint | null,
  ended: readonly string[],
): void {
  const [published] = checkpoint?.note.split('\n') ?? [];
  const names = published === undefined ? namesOfLogKeys(keys) : [published];
  const current = names.filter((name) => !ended.includes(name));
  if (!ended.includes(origin) && (current.length === 0 || current.includes(origin))) return;
  const problem =
    published === undefined && !ended.includes(origin)
      ? 'but the log has log keys of other names only: give the verifier the LOG_ORIGIN of the publisher, or activate the log key of the publisher with admin log-key activate <vkey>'
      : 'which is retired or not the name of this log: give the verifier the LOG_ORIGIN of the publisher';
  throw new OperatorError(`LOG_ORIGIN is ${origin}, ${problem}`);
}

const namesOfLogKeys = (keys: readonly KeyedEntry[]): string[] =>
  keys.flatMap(({ entry }) =>
    entry.type === 'key' && entry.use === 'log'
      ? (attempt(() => parseVkey(entry.vkey, nativeSha256).name) ?? [])
      : [],
  );

/** The result of checking one leaf. */
export interface Finding {
  leafIndex: number;
  outcome: Outcome;
  checks: Check[];
  ends: Expiry[];
  /** The compromised key that is the only reason for the failure, or null. */
  voidedBy: string | null;
}

/** Checks one leaf, like {@link checkLeaf}; `leaf` is undefined if the log lacks it. */
export function examine(
  { crypto }: Pick<VerifyContext, 'crypto'>,
  leafIndex: number,
  leaf: LeafEvidence | undefined,
  keys: KeysOfLog,
  leafHashInTree: Uint8Array,
  origins: readonly string[] | undefined,
): Finding {
  const { checks, aep } =
    leaf === undefined ? MISSING : checkLeaf(crypto, leaf, keys, leafHashInTree, origins);
  const isErased = leaf?.proof?.isErased === true;
  const outcome = !allPassed(checks) ? 'fail' : isErased ? 'erased' : 'pass';
  // Expiries are read only from a verified AEP.
  const ends = outcome === 'pass' && aep !== null ? expiriesOf(aep) : [];
  return {
    leafIndex,
    outcome,
    checks,
    ends: ends.map((end) => ({ leafIndex, ...end })),
    voidedBy: voidingKey(leaf, checks, keys.states),
  };
}

const MISSING: ProofFindings = {
  checks: [{ name: 'log_entry', result: 'fail', detail: 'the leaf is missing' }],
  aep: null,
};

/** The id of the compromised key, if the compromise is the only reason why a proof fails. */
function voidingKey(
  leaf: LeafEvidence | undefined,
  checks: readonly Check[],
  keys: KeyStates,
): string | null {
  const failed = checks.filter(({ result }) => result === 'fail');
  const keyId = leaf?.proof?.keyId ?? null;
  if (leaf === undefined || keyId === null) return null;
  if (failed.length !== 1 || failed[0]?.name !== 'signing_key') return null;
  return keys.at(keyId, leaf.leafIndex).state === 'compromised' ? keyId : null;
}

/** The checks of an erased payload, besides the checks of its log entry. */
export const ERASED_CHECKS: readonly Check[] = [
  { name: 'aep_hash', result: 'not_applicable', detail: 'the payload has been erased' },
];

function checkColumns(columns: SubjectColumns, aep: Aep | null): Check {
  if (aep !== null && columnsUnlikeAep(columns, aep).length === 0) {
    return { name: ROW_CHECK_NAME, result: 'pass' };
  }
  return { name: ROW_CHECK_NAME, result: 'fail', detail: 'the stored columns differ from the AEP' };
}

function checkEntry(leaf: LeafEvidence, isSound: boolean, leafHashInTree: Uint8Array): Check[] {
  const isIncluded = equalBytes(leafHash(nativeSha256, leaf.entry), leafHashInTree);
  return [
    { name: 'log_entry', result: isSound ? 'pass' : 'fail' },
    { name: 'inclusion', result: isIncluded ? 'pass' : 'fail' },
  ];
}

/** Key entries of a prefix of the log, and a digest that detects lost and changed entries. */
export interface KeyHistory {
  entries: KeyedEntry[];
  /** Hash chain over index and leaf hash of every key entry, 32 bytes. */
  digest: Buffer;
  /** Whether the digest matches the recorded digest. If not, later entries are ignored too. */
  sound: boolean;
}

export const NO_KEYS: KeyHistory = { entries: [], digest: NO_KEYS_DIGEST, sound: true };

/** A canonical key entry begins with `{"change":`. Besides key entries, only erasures (`{"cause":`) are parsed. */
const FIRST_OF_NAME = 2;
const C_OF_CHANGE = 0x63;

interface KnownEntry {
  bytes: Uint8Array;
  entry: KeyEntry | null;
  /** The digests of the key entries before this entry, and up to and including this entry. */
  digests: [before: Buffer, after: Buffer];
}
const known = new Map<number, KnownEntry>();

/**
 * Parses and hashes each key entry once: delegation makes many entries, and every pass reads all of
 * them.
 */
function readKeyEntry(leafIndex: number, bytes: Uint8Array, before: Buffer): KnownEntry {
  const last = known.get(leafIndex);
  if (last?.digests[0].equals(before) === true && equalBytes(last.bytes, bytes)) return last;
  const entry = readEntry(bytes);
  const isKey = entry?.type === 'key';
  const after = isKey ? nextKeysDigest(before, leafIndex, bytes) : before;
  const found: KnownEntry = {
    bytes: Uint8Array.from(bytes),
    entry: isKey ? entry : null,
    digests: [before, after],
  };
  known.set(leafIndex, found);
  return found;
}

/** Adds the key entries among the leaves that follow the history. */
export function extendHistory(
  { entries: before, digest: digestBefore, sound }: KeyHistory,
  leaves: readonly { leafIndex: number; bytes: Uint8Array }[],
): KeyHistory {
  const entries = [...before];
  let digest = digestBefore;
  for (const { leafIndex, bytes } of leaves) {
    if (bytes[FIRST_OF_NAME] !== C_OF_CHANGE) continue;
    const { digests, entry } = readKeyEntry(leafIndex, bytes, digest);
    if (entry !== null && sound) entries.push({ leafIndex, entry });
    digest = digests[1];
  }
  return { entries, digest, sound };
}

/**
 * The key entries of the verified prefix. If an entry was lost, added or changed since the
 * verification, the history is empty and no signature verifies: a lost `compromise` must never make
 * a key valid again, and a key whose earlier entries were lost must not be activated a second time.
 */
export async function trustedKeys(
  context: PassContext,
  prefix: VerifiedPrefix | null,
): Promise<KeyHistory> {
  if (prefix === null) return NO_KEYS;
  const verified = (await keyEntries(context.sql)).filter(
    ({ leafIndex }) => leafIndex < prefix.treeSize,
  );
  const history = extendHistory(
    NO_KEYS,
    verified.map(({ leafIndex, body: bytes }) => ({ leafIndex, bytes })),
  );
  if (history.digest.equals(prefix.keysDigest)) return history;
  context.log.error(
    'verifier: the history of signing keys differs from the verified one; every proof fails',
  );
  return { entries: [], digest: prefix.keysDigest, sound: false };
}
