import { openCheckpointNote, type Checkpoint } from '../checkpoint.js';
import { ProtocolError } from '../errors.js';
import { leafHash, verifyInclusion } from '../merkle.js';
import { parseTlogProof } from '../tlog-proof.js';
import type { VerifyCrypto } from '../verify.js';
import { faultOf, textOf, type TextOrBytes } from './read.js';
import type { OfflineFault, Placed } from './result.js';
import type { LogPin } from './trust.js';

/** An inclusion proof as a document claims it, from a leaf to a signed root. */
export interface InclusionClaim {
  index: number;
  /** From the leaf's sibling up, 32 bytes each. */
  path: readonly Uint8Array[];
  /** A signed note. */
  checkpoint: string;
  /** The tree size that the document states beside the checkpoint. */
  treeSize?: number;
}

export function readTlogProof(
  text: TextOrBytes,
): { claim: InclusionClaim } | { fault: OfflineFault } {
  try {
    return { claim: parseTlogProof(textOf(text)) };
  } catch (error) {
    return { fault: faultOf(error, 'malformed_tlog_proof') };
  }
}

/** The leaf index of the entry in the pinned log, or the fault of the claim. */
export function placeOf(
  entry: Uint8Array,
  claim: InclusionClaim,
  log: LogPin,
  { sha256, verify }: VerifyCrypto,
): Placed {
  const { index, path, checkpoint, treeSize } = claim;
  let under: Checkpoint;
  try {
    under = openCheckpointNote(checkpoint, log.vkeys, log.origin, verify).checkpoint;
  } catch (error) {
    return { fault: checkpointFault(error) };
  }
  if (treeSize !== undefined && treeSize !== under.size) {
    const detail = `the checkpoint has tree size ${under.size}, not ${treeSize}`;
    return { fault: { code: 'tree_size_mismatch', detail } };
  }
  const leaf = leafHash(sha256, entry);
  if (
    !verifyInclusion(sha256, { index, size: under.size, leafHash: leaf, path, root: under.root })
  ) {
    const detail = `the path does not lead from leaf ${index} to the root of the checkpoint`;
    return { fault: { code: 'not_in_tree', detail } };
  }
  return { place: { leafIndex: index, under } };
}

function checkpointFault(error: unknown): OfflineFault {
  // Envelopes and notes share this code; the fault must distinguish a forged checkpoint.
  if (error instanceof ProtocolError && error.code === 'bad_signature') {
    return { code: 'bad_checkpoint_signature', detail: error.message };
  }
  return faultOf(error, 'malformed_note');
}
