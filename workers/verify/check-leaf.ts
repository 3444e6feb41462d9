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

/** Every check of one leaf, from the stored bytes alone. Nothing throws. */
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

/** What the checks of a leaf come to. */
export function outcomeOf(leaf: LeafEvidence | undefined, checks: readonly Check[]): Outcome {
  if (!allPassed(checks)) return 'fail';
  return leaf?.proof?.isErased === true ? 'erased' : 'pass';
}

/** Of an erased proof, what a verdict says besides its entry. */
export const ERASED_CHECKS: readonly Check[] = [
  { name: 'aep_hash', result: 'not_applicable', detail: 'the payload has been erased' },
];

/** Its entry is still what the log committed to, at its place: that much can be verified for ever. */
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
 * The publisher never sees an AEP: it publishes columns, and those must be what the AEP says. So
 * must those that decide who may read a proof and in which lists it is.
 */
function checkColumns(columns: Columns, said: Aep | null): Check {
  const same = said !== null && isSaid(columns, said);
  return same
    ? { name: ROW_CHECK_NAME, result: 'pass' }
    : { name: ROW_CHECK_NAME, result: 'fail', detail: 'the stored columns are not the AEP' };
}

function isSaid(columns: Columns, { subject, ...said }: Aep): boolean {
  return (
    columns.effect === said.decision.effect &&
    columns.environment === said.environment &&
    columns.keyId === said.key_id &&
    columns.tenantId === said.tenant_id &&
    columns.lane === (requestTypeOf(subject) === 'execute' ? 1 : 2) &&
    columns.isOutcome === (subject.kind === 'outcome') &&
    columns.action === ('action' in subject ? subject.action : null) &&
    columns.intentId === ('intent_id' in subject ? subject.intent_id : null)
  );
}

/** Status and key entries have no payload: they are well-formed and in the tree, or not. */
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

/** A row is found by its kind and by the proof that it is filed under, so both must be its own. */
function isOtherEntry(leaf: LeafEvidence): boolean {
  const entry = readEntry(leaf.entry);
  if (entry === null || entry.type === 'proof' || entry.type !== leaf.kind) return false;
  return (entry.type === 'status' ? entry.proof_id : null) === leaf.filedUnder;
}
