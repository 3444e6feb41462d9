import { fromBase64 } from '../bytes.js';
import { type Checkpoint, parseTlogProof } from '../checkpoint.js';
import { ProtocolError } from '../errors.js';
import { leafHash, verifyInclusion } from '../merkle.js';
import type { InclusionProof } from '../schemas/proof-export.js';
import type { VerifyCrypto } from '../verify.js';
import { isText, textOf, type TextOrBytes } from './read.js';
import { faultOf, type OfflineFault, type Place } from './result.js';
import { type LogPin, openPinned } from './trust.js';

type Placed = { place: Place } | { fault: OfflineFault };

interface InclusionClaim {
  index: number;
  path: readonly Uint8Array[];
  checkpoint: string;
  /** The tree size that the document states beside the checkpoint. */
  treeSize?: number;
}

/** The leaf index of the entry in the pinned log, or the fault in the claimed inclusion. */
export function placeOf(
  entry: Uint8Array,
  claimed: TextOrBytes | InclusionProof,
  log: LogPin,
  { sha256, verify }: VerifyCrypto,
): Placed {
  let claim: InclusionClaim;
  try {
    claim = isText(claimed) ? parseTlogProof(textOf(claimed)) : claimIn(claimed);
  } catch (error) {
    return { fault: faultOf(error, 'malformed_tlog_proof') };
  }
  const { index, path, checkpoint, treeSize } = claim;
  let under: Checkpoint;
  try {
    under = openPinned(checkpoint, log, verify).checkpoint;
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

function claimIn(inclusion: InclusionProof): InclusionClaim {
  const { leaf_index: index, tree_size: treeSize, path, checkpoint } = inclusion;
  return { index, treeSize, path: path.map(fromBase64), checkpoint };
}

function checkpointFault(error: unknown): OfflineFault {
  // Envelopes and notes share this error code; the fault must distinguish a forged checkpoint.
  if (error instanceof ProtocolError && error.code === 'bad_signature') {
    return { code: 'bad_checkpoint_signature', detail: error.message };
  }
  return faultOf(error, 'malformed_note');
}
