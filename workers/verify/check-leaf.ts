import { approvalAt } from '#protocol/approvals';
import { equalBytes } from '#protocol/bytes';
import { readEntry } from '#protocol/entries';
import { keyStateAt, type KeyedEntry } from '#protocol/keys';
import { leafHash } from '#protocol/merkle';
import type { Aep } from '#protocol/schemas/aep';
import { ROW_CHECK_NAME } from '#protocol/schemas/verdict';
import type { Outcome } from '#protocol/status';
import {
  allPassed,
  examineProof,
  type Check,
  type ProofFindings,
  type ProofCrypto,
} from '#protocol/verify';
import { isSignedVerdict } from '#protocol/verdict-entries';
import { nativeSha256 } from '#runtime/crypto/node';
import { endedOrigins } from '#sql/log/checkpoints';
import {
  type LeafEvidence,
  columnsUnlikeAep,
  expiriesOf,
  filedEntry,
  type SubjectColumns,
  NO_KEYS_DIGEST,
  nextKeysDigest,
} from '#sql/log/leaf-checks';
import { keyEntries } from '#sql/log/log';
import type { Expiry, VerifiedPrefix } from '#sql/log/verdicts';
import type { VerifyContext } from './context.js';

/**
 * Runs every check of one leaf on the stored bytes. Never throws.
 *
 * @param origins names of the log, for one of which a verdict entry must be signed; by default the
 *   signature is not checked
 */
export function checkLeaf(
  crypto: ProofCrypto,
  leaf: LeafEvidence,
  keys: readonly KeyedEntry[],
  logSize: number,
  leafHashInTree: Uint8Array,
  origins?: readonly string[],
): ProofFindings {
  if (leaf.proof === null) {
    const entry = filedEntry(leaf);
    const isSigned =
      entry?.type !== 'verdict' ||
      origins === undefined ||
      origins.some((origin) => isSignedVerdict(crypto, origin, entry, keys, leaf.leafIndex));
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
    builtAep: rebuilt.aep,
    signature,
    proof_id: proofId,
    entry: leaf.entry,
    leafIndex: leaf.leafIndex,
    key: keyStateAt(keys, keyId, leaf.leafIndex, logSize),
    approval: approvalAt(leaf.leafIndex, keys, approval),
    inclusion: { leafHashInTree },
  });
  found.checks.push(checkColumns(leaf.proof, found.aep));
  return found;
}

/** The names of the log, past and present; undefined for a verifier without a key. */
export async function logOrigins(context: VerifyContext): Promise<string[] | undefined> {
  const { signer, sql } = context;
  return signer && [signer.origin, ...(await endedOrigins(sql))];
}

/** The verdict that follows from the checks of a leaf. */
export function outcomeOf(leaf: LeafEvidence | undefined, checks: readonly Check[]): Outcome {
  if (!allPassed(checks)) return 'fail';
  return leaf?.proof?.isErased === true ? 'erased' : 'pass';
}

/** Expiry times of a verified proof's artifacts. */
export function expiriesAt(leafIndex: number, aep: Aep | null): Expiry[] {
  return aep === null ? [] : expiriesOf(aep).map((end) => ({ leafIndex, ...end }));
}

/** Checks of an erased payload, besides those of its log entry. */
export const ERASED_CHECKS: readonly Check[] = [
  { name: 'aep_hash', result: 'not_applicable', detail: 'the payload has been erased' },
];

function checkColumns(columns: SubjectColumns, aep: Aep | null): Check {
  if (aep !== null && columnsUnlikeAep(columns, aep).length === 0) {
    return { name: ROW_CHECK_NAME, result: 'pass' };
  }
  return { name: ROW_CHECK_NAME, result: 'fail', detail: 'the stored columns differ from the AEP' };
}

/** Without a payload, only the entry's form, inclusion and a verdict's signature are checked. */
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
  /** Whether the digest matches the verified one. If not, later entries are ignored too. */
  sound: boolean;
}

export const NO_KEYS: KeyHistory = { entries: [], digest: NO_KEYS_DIGEST, sound: true };

/** A canonical key entry begins with `{"change":`; no other entry begins with that letter. */
const FIRST_OF_NAME = 2;
const C_OF_CHANGE = 0x63;

/** Appends the leaf to the history if it is a key entry. */
export function appendIfKeyEntry(
  history: KeyHistory,
  leafIndex: number,
  bytes: Uint8Array,
): KeyHistory {
  if (bytes[FIRST_OF_NAME] !== C_OF_CHANGE) return history;
  const entry = readEntry(bytes);
  if (entry?.type !== 'key') return history;
  return {
    entries: history.sound ? [...history.entries, { leafIndex, entry }] : [],
    digest: nextKeysDigest(nativeSha256, history.digest, leafIndex, bytes),
    sound: history.sound,
  };
}

/**
 * The key entries of the verified prefix. If any was lost, added or changed since it was verified, the
 * history is empty and no signature verifies: a lost `compromise` must never make a key valid again,
 * and a key without its past must not be activated a second time.
 */
export async function trustedKeys(
  context: VerifyContext,
  prefix: VerifiedPrefix | null,
): Promise<KeyHistory> {
  if (prefix === null) return NO_KEYS;
  let history = NO_KEYS;
  for (const { leafIndex, body } of await keyEntries(context.sql)) {
    if (leafIndex < prefix.treeSize) history = appendIfKeyEntry(history, leafIndex, body);
  }
  if (history.digest.equals(prefix.keysDigest)) return history;
  context.log.error(
    'verifier: the history of signing keys differs from the verified one; every proof fails',
  );
  return { entries: [], digest: prefix.keysDigest, sound: false };
}
