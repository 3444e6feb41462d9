import { TILE_WIDTH, tileWidth } from '#protocol/tiles';
import type { ProofLeaf } from '../registry/registry-view.js';

/** Immutable facts of a logged proof, and the tile that first published its leaf. */
export interface ProofFacts extends Omit<ProofLeaf, 'kind'> {
  logOrigin: string;
  /** Number of leaves in that tile when the proof was first published. */
  tileWidth: number;
}

export function factsOfLeaf(leaf: ProofLeaf, logOrigin: string, treeSize: number): ProofFacts {
  const width = tileWidth(0, Math.floor(leaf.leafIndex / TILE_WIDTH), treeSize);
  return {
    leafIndex: leaf.leafIndex,
    proofId: leaf.proofId,
    aepHash: leaf.aepHash,
    proofRecordHash: leaf.proofRecordHash,
    acceptedAt: leaf.acceptedAt,
    effect: leaf.effect,
    isOutcome: leaf.isOutcome,
    environment: leaf.environment,
    keyId: leaf.keyId,
    logOrigin,
    tileWidth: width,
  };
}
