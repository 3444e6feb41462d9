import { parseEntry } from '#protocol/entries';
import { keyStateAt, type KeyedEntry } from '#protocol/key-state';
import { equalBytes } from '#protocol/bytes';
import { leafHash, verifyInclusion } from '#protocol/merkle';
import { verifyProof, type Check, type ProofEvidence } from '#protocol/verify';
import { nativeSha256, nativeVerify } from '#runtime/crypto';
import type { LeafEvidence } from '#sql/evidence';

const crypto = { sha256: nativeSha256, verify: nativeVerify };

/** Every check of one leaf, from the stored bytes alone. Nothing throws. */
export function checkLeaf(
  leaf: LeafEvidence,
  keys: readonly KeyedEntry[],
  logSize: number,
  inclusion: ProofEvidence['inclusion'],
): Check[] {
  if (leaf.proof === null) return checkOtherLeaf(leaf, inclusion);
  const { proofId, request, aep, signature, keyId } = leaf.proof;
  if (aep === null || signature === null || keyId === null) {
    return [{ name: 'aep_hash', result: 'fail', detail: 'the stored AEP is missing' }];
  }
  return verifyProof(crypto, {
    request,
    aep,
    signature,
    proof_id: proofId,
    entry: leaf.entry,
    leafIndex: leaf.leafIndex,
    key: keyStateAt(keys, keyId, leaf.leafIndex, logSize),
    inclusion,
  });
}

/** Status and key entries have no payload: they are well-formed and in the tree, or not. */
function checkOtherLeaf(leaf: LeafEvidence, inclusion: ProofEvidence['inclusion']): Check[] {
  const hash = leafHash(nativeSha256, leaf.entry);
  const included =
    'leafHashInTree' in inclusion
      ? equalBytes(hash, inclusion.leafHashInTree)
      : verifyInclusion(nativeSha256, { index: leaf.leafIndex, leafHash: hash, ...inclusion });
  return [
    { name: 'log_entry', result: isOtherEntry(leaf.entry) ? 'pass' : 'fail' },
    { name: 'inclusion', result: included ? 'pass' : 'fail' },
  ];
}

function isOtherEntry(bytes: Uint8Array): boolean {
  try {
    return parseEntry(bytes).type !== 'proof';
  } catch {
    return false;
  }
}
