import { TILE_WIDTH, tileWidth } from '#protocol/tiles';
import type { ProofLeaf } from '../registry/registry-view.js';

/** What stands fixed about a proof once it is in the log, and where its leaf was first published. */
export interface ProofFacts extends Omit<ProofLeaf, 'kind'> {
  logOrigin: string;
  /** How many leaves the tile of the leaf had when the proof was first published. */
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
