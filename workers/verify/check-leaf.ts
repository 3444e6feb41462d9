import { readEntry } from '#protocol/entries';
import type { Aep } from '#protocol/schemas/aep';
import { keyStateAt, type KeyedEntry } from '#protocol/keys';
import { equalBytes } from '#protocol/bytes';
import { leafHash, verifyInclusion } from '#protocol/merkle';
import { ROW_CHECK_NAME } from '#protocol/schemas/verdict';
import type { Outcome } from '#protocol/status';
import {
  allPassed,
  examineProof,
  type Check,
  type ProofEvidence,
  type ProofFindings,
  type VerifyCrypto,
} from '#protocol/verify';
import { nativeSha256 } from '#runtime/crypto/node';
import {
  type LeafEvidence,
  columnsUnlikeAep,
  expiriesOf,
  filedEntry,
  type AepColumns,
} from '#sql/log/leaf-checks';
import type { Expiry } from '#sql/log/verdicts';

/** Runs every check of one leaf on the stored bytes. Never throws. */
export function checkLeaf(
  crypto: VerifyCrypto,
  leaf: LeafEvidence,
  keys: readonly KeyedEntry[],
  logSize: number,
  inclusion: ProofEvidence['inclusion'],
): ProofFindings {
  if (leaf.proof === null) return { checks: checkOtherLeaf(leaf, inclusion), aep: null };
  if (leaf.proof.isErased) return { checks: checkErased(leaf, inclusion), aep: null };
  const { proofId, request, aep, signature, keyId } = leaf.proof;
  if (aep === null || signature === null || keyId === null) {
    const detail = 'the stored AEP is missing';
    return { checks: [{ name: 'aep_hash', result: 'fail', detail }], aep: null };
  }
  const found = examineProof(crypto, {
    request,
    aep,
    signature,
    proof_id: proofId,
    entry: leaf.entry,
    leafIndex: leaf.leafIndex,
    key: keyStateAt(keys, keyId, leaf.leafIndex, logSize),
    inclusion,
  });
  found.checks.push(checkColumns(leaf.proof, found.aep));
  return found;
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

/** The log entry of an erased proof remains verifiable. */
function checkErased(leaf: LeafEvidence, inclusion: ProofEvidence['inclusion']): Check[] {
  const entry = readEntry(leaf.entry);
  const isOwn = entry?.type === 'proof' && entry.proof_id === leaf.filedUnder;
  return [
    ...ERASED_CHECKS,
    { name: 'log_entry', result: isOwn ? 'pass' : 'fail' },
    { name: 'inclusion', result: isIncluded(leaf, inclusion) ? 'pass' : 'fail' },
  ];
}

function checkColumns(columns: AepColumns, aep: Aep | null): Check {
  if (aep !== null && columnsUnlikeAep(columns, aep).length === 0) {
    return { name: ROW_CHECK_NAME, result: 'pass' };
  }
  return { name: ROW_CHECK_NAME, result: 'fail', detail: 'the stored columns differ from the AEP' };
}

/** Status and key entries have no payload: only their form and inclusion are checked. */
function checkOtherLeaf(leaf: LeafEvidence, inclusion: ProofEvidence['inclusion']): Check[] {
  return [
    { name: 'log_entry', result: filedEntry(leaf) === null ? 'fail' : 'pass' },
    { name: 'inclusion', result: isIncluded(leaf, inclusion) ? 'pass' : 'fail' },
  ];
}

function isIncluded(leaf: LeafEvidence, inclusion: ProofEvidence['inclusion']): boolean {
  const hash = leafHash(nativeSha256, leaf.entry);
  return 'leafHashInTree' in inclusion
    ? equalBytes(hash, inclusion.leafHashInTree)
    : verifyInclusion(nativeSha256, { index: leaf.leafIndex, leafHash: hash, ...inclusion });
}
