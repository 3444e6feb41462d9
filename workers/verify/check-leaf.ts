import { requestTypeOf } from '#protocol/aep';
import { readEntry } from '#protocol/entries';
import type { Aep } from '#protocol/schemas/aep';
import { keyStateAt, type KeyedEntry } from '#protocol/key-state';
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
import type { LeafEvidence } from '#sql/log/evidence';

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

type Columns = NonNullable<LeafEvidence['proof']>;

/**
 * Compares the columns with the AEP. The publisher reads columns and never an AEP; other columns
 * decide who may read a proof and which lists contain it.
 */
function checkColumns(columns: Columns, aep: Aep | null): Check {
  const same = aep !== null && matchesAep(columns, aep);
  return same
    ? { name: ROW_CHECK_NAME, result: 'pass' }
    : { name: ROW_CHECK_NAME, result: 'fail', detail: 'the stored columns differ from the AEP' };
}

function matchesAep(columns: Columns, { subject, ...aep }: Aep): boolean {
  return (
    columns.effect === aep.decision.effect &&
    columns.environment === aep.environment &&
    columns.keyId === aep.key_id &&
    columns.tenantId === aep.tenant_id &&
    columns.lane === (requestTypeOf(subject) === 'execute' ? 1 : 2) &&
    columns.isOutcome === (subject.kind === 'outcome') &&
    columns.action === ('action' in subject ? subject.action : null) &&
    columns.intentId === ('intent_id' in subject ? subject.intent_id : null)
  );
}

/** Status and key entries have no payload: only their form and inclusion are checked. */
function checkOtherLeaf(leaf: LeafEvidence, inclusion: ProofEvidence['inclusion']): Check[] {
  return [
    { name: 'log_entry', result: isOtherEntry(leaf) ? 'pass' : 'fail' },
    { name: 'inclusion', result: isIncluded(leaf, inclusion) ? 'pass' : 'fail' },
  ];
}

function isIncluded(leaf: LeafEvidence, inclusion: ProofEvidence['inclusion']): boolean {
  const hash = leafHash(nativeSha256, leaf.entry);
  return 'leafHashInTree' in inclusion
    ? equalBytes(hash, inclusion.leafHashInTree)
    : verifyInclusion(nativeSha256, { index: leaf.leafIndex, leafHash: hash, ...inclusion });
}

/** Queries find a row by its kind and proof id columns, so both must match the entry. */
function isOtherEntry(leaf: LeafEvidence): boolean {
  const entry = readEntry(leaf.entry);
  if (entry === null || entry.type === 'proof' || entry.type !== leaf.kind) return false;
  return (entry.type === 'status' ? entry.proof_id : null) === leaf.filedUnder;
}
