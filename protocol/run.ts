import { documentHash, type Sha256 } from './hash.js';

/** The hash in a close over the other proofs of its run, in log order; lower-case hex. */
export function membersHash(
  sha256: Sha256,
  members: readonly { proofId: string; aepHash: string }[],
): string {
  return documentHash(
    sha256,
    members.map(({ proofId, aepHash }) => [proofId, aepHash]),
  );
}
